"""Commands that start a server, and replace what it serves."""

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from bundle_serving.agreement import Agreement, Bound
from scripts.artefacts import progress
from scripts.base import console
from scripts.base.paths import ROOT
from scripts.repository.history import Event
from scripts.rollout import rollout, shadow, verdict
from scripts.rollout.stream import Answer
from scripts.server import up
from scripts.steps import engine, gate
from tests.shown.asking import classify
from tests.shown.running import KNOWN, VERSION, replaced, run


def history() -> None:
    why = "p99 was 312.5 ms, 2.4 times that of version 11, and MAX_P99_RATIO=2 allows no more"
    events = [
        Event("2026-11-25T10:30:00+00:00", "serves", 11, "up", "mobilenet_v2 from torchvision"),
        Event("2026-11-26T10:30:00+00:00", "stayed", 12, "rollout", why),
    ]
    run("history", {
        "scripts.stacks.state.load": lambda: None,
        "scripts.repository.shared.Shared.pull": lambda _: None,
        "scripts.repository.history.read": lambda _: events,
    })  # fmt: skip


WEIGHTS = "/home/ann/models/birds/2026/checkpoint-000123.pth"
AGREED = Agreement(209, 194, 0.2)


def build() -> None:
    """What steps say of a network."""
    why = f"bf16 fails the accuracy check ({AGREED}; {Bound(0.1, 0.99)}); {Agreement(9, 9, 2.4e-6)}"
    with replaced({
        "scripts.artefacts.progress.time.monotonic": lambda: 0.0,
        "scripts.steps.engine.Check.fits": lambda *_: False,
        "scripts.steps.engine.decide": lambda *_: {"precision": "fp32", "why": why},
        "scripts.steps.engine.Check.identity": lambda *_: {},
        "scripts.steps.engine.files.write": lambda *_: None,
    }):  # fmt: skip
        with progress.step(f"loading mobilenet_v2, weights {WEIGHTS}"):
            pass
        with progress.step("comparing"), progress.step("asking PyTorch itself"):
            pass
        engine.choose_precision(engine.Check(ROOT), ROOT)
        gate.judge("network", AGREED, Bound(0.5, 0.5))


def started() -> None:
    """A server that is as it should be, and one that cannot be replaced without a pause."""
    build()
    known: Any = SimpleNamespace(**vars(KNOWN) | {"fingerprint": "", "took": 12.3})
    stack: Any = SimpleNamespace(flavour="cpu", many=None, alive=lambda: True)
    settings: Any = SimpleNamespace(values={})
    with replaced({
        "scripts.server.up.fingerprint": lambda *_: "",
        "scripts.server.up.unhealthy_reason": lambda *_: None,
        "scripts.stacks.flavour.stack_of": lambda _: stack,
        "scripts.server.up.state.load": lambda: known,
    }):  # fmt: skip
        up._serve(stack, settings, VERSION, {}, ExitStack())
    console.note(up.announce_silence(12.3, "it is of another flavour"))


def demo() -> None:
    """Without torchvision's weights."""
    ask = SimpleNamespace(recipe=SimpleNamespace(ask=lambda *_: classify()))
    at = "scripts.commands.serve.demo"
    run("demo", {
        f"{at}._is_settled": lambda _: False,
        f"{at}.why_unavailable": lambda: "https://download.pytorch.org does not answer",
        f"{at}.own_main.bring_up": lambda *_: KNOWN,
        f"{at}.picture.write_for_users": lambda: "build/mug.jpg",
        f"{at}.pipelines.main": lambda: ask,
    })  # fmt: skip


def build_another(*_: Any) -> Any:
    build()
    return VERSION


def publish() -> None:
    at = "scripts.commands.versions.publish"
    run("publish", {
        f"{at}.pipelines.find_asked_pipeline": lambda: VERSION.pipeline,
        f"{at}.state.load": lambda: KNOWN,
        f"{at}.Shared": MagicMock(),
        f"{at}.served.serving": lambda _: SimpleNamespace(number=11, workspace=None),
        f"{at}.rollout.has_reordered_labels": lambda *_: True,
        f"{at}.settings_of": MagicMock(),
        f"{at}.up.build_version": build_another,
        f"{at}.flavour.stack": MagicMock(),
    })  # fmt: skip


def rolled_out() -> None:
    """The verdict of a trial, of the labels, and the end."""
    answers = [Answer(number, 0, 123.4 + number, "mug") for number in (11, 12) for _ in range(2000)]
    stream = MagicMock(mark=int, answers_since=lambda _: answers, all=lambda: answers)
    at = "scripts.rollout.rollout"
    with replaced({f"{at}.watch": lambda *_: None}):
        rollout.judge(stream, "version 12 live, on trial", 12, 1, 2.0)
    rollout.require_agreement(verdict.Agreement(53, 53), VERSION, 90)
    carried = "loaded in 1.2 s, switched in 0.01 s, p99 312 -> 298 ms; right on 94.1%, before 93.8%"
    switch = SimpleNamespace(carry_out=lambda *_: carried)
    given, new = MagicMock(), MagicMock(title=VERSION.title)
    new.pipeline.is_main = False
    with replaced({
        f"{at}.prove": lambda *_: SimpleNamespace(new=new, questions=[]),
        f"{at}.InPlace": lambda *_: switch,
        f"{at}.Stream": lambda *_, **__: stream,
        f"{at}.preflight.is_untrained": lambda _: False,
        f"{at}.lock.hands_off": nullcontext,
    }):  # fmt: skip
        given.stack.many = None
        rollout.switch_to(12, "rollout", given)


def shadowed() -> None:
    ids = [f"7f3a9c1e-5d2b-4e8f-9a6b-1c2d3e4f5a{n}b" for n in range(3)]
    changes = [
        {"count": 123, "live": "television, television system", "candidate": "screen", "ids": ids},
        {"count": 4, "live": "mug", "candidate": "", "ids": ids[:1]},
    ]
    seen = shadow.Seen(12_345, 127, 4, 17, 1234.5, changes, [(0.123, 0.234), (1.234, 2.345)])
    shadow.show(seen, 12)


SHOWN = {
    "up": started, "demo": demo, "publish": publish, "rollout": rolled_out, "shadow": shadowed,
    "history": history,
}  # fmt: skip
NOTES_ALONE = {
    "add-model": "what it is taken for; the rest as up",
    "remove-model": "what was removed",
}
ELSEWHERE = {"rollback": "as rollout"}
