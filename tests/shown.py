"""Writes what commands show of data that are the same each time, without a server:

python -m tests.shown bench status …
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmark import compare, contenders
from benchmark.torture import __main__ as torturing
from bundle_client import command as asking
from bundle_client.answers.boxes import Box, Detected
from bundle_client.answers.wire import Label, Result
from bundle_client.errors import PictureRefused
from bundle_client.show import boxes_as_table
from bundle_serving.address import Address
from scripts.base import console, tables
from scripts.base.findings import FAILURE, OK, WARNING, Finding
from scripts.base.paths import ROOT
from scripts.evaluation.figures import compute_figures
from scripts.evaluation.scores import Answers
from scripts.measuring.compare import Change, Comparison
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import Measurement, Sample
from scripts.measuring.photos import Inputs
from scripts.measuring.report import evaluation
from scripts.measuring.request_spans import spans
from scripts.measuring.waterfall import Counters
from scripts.measuring.workload import ENSEMBLE, NETWORK, TEXTBOOK, Configuration, Target
from scripts.repository.history import Event
from scripts.server.model_control import Model

STEPS = ("sentiment_preprocessing", "resnet50_onnx", "sentiment_postprocessing")
PIPELINE = "ensemble_python_resnet50"
SERVER = Address("127.0.0.1", 8000)
MODELS = ("ensemble_python_resnet50", *STEPS)
VERSION: Any = SimpleNamespace(
    network="mobilenet_v2",
    evaluated=None,
    number=12,
    precision="bf16",
    pipeline=SimpleNamespace(ensemble=PIPELINE),
    serving=f"{PIPELINE}, serving mobilenet_v2",
    workspace=SimpleNamespace(
        decision={"precision": "bf16", "why": "the fastest of those that pass the comparison"}
    ),
)
KNOWN: Any = SimpleNamespace(
    flavour="cpu",
    http=SERVER,
    shown=(SERVER, Address("127.0.0.1", 8001)),
    settings_at_start=None,
    main=PIPELINE,
)
EVENTS = [{"at": time.time(), "did": f"{PIPELINE} was not loaded, though it should be: loaded it"}]
STACK: Any = SimpleNamespace(many=None, keeper_state=lambda: {"events": EVENTS})


def measurements() -> list[Measurement]:
    def one(
        label: str, inputs: str, rate: float, at: int, batch: int = 1, spread: float = 0.01
    ) -> Any:
        parts = STEPS if label != NETWORK else ()
        target = Target(label, PIPELINE, SERVER, SERVER, "INPUT", (STEPS[1],), parts=parts)
        counted = {
            PIPELINE: Counters(requests=100, total=90_000_000_000),
            STEPS[1]: Counters(100, 0, 100, 40, 0, 9_000_000_000, 10**8, 76_000_000_000, 10**7),
        }
        cpu = {"resnet50_onnx": 1031.4, "envoy": 31.25, "bundle_door": 112.7, "tritonserver": 5.1}
        samples = [
            Sample(rate * (1 + n * spread), 1000.04, 12345.6, 23456.7, 34567.8, 100, counted,
                   cpu, dict(zip(STEPS, (12.0, 25.0, 0.2), strict=True)), number=n)
            for n in range(3)
        ]  # fmt: skip
        asked = Configuration(target, Inputs(inputs, (b"",)), "grpc", batch, at)
        return Measurement(asked, tuple(samples))

    rates = {"8.5 MP": (28.4, 10.4), "holiday-photos-of-2026": (1112.5, 512.5)}
    found = [one(ENSEMBLE, name, rate, at) for name, (rate, _) in rates.items() for at in (1, 4)]
    found += [one(ENSEMBLE, "8.5 MP", 33.3, 8, spread=0.3), one(ENSEMBLE, "8.5 MP", 33.3, 1, 8)]
    found += [one(TEXTBOOK, name, rate, 4) for name, (_, rate) in rates.items()]
    return [*found, one(NETWORK, "pixels", 1250.5, 1), one(NETWORK, "pixels", 1250.5, 4)]


def bench() -> None:
    ratio = Estimate(2.13, 1.98, 2.55)
    changes = [
        Change("ensemble, 8.5 MP, grpc, 4 at a time", ratio, Estimate(0.5, 0.45, 0.61)),
        Change("bare network, pixels, grpc, 4 at a time", None, None, "failed then"),
    ]
    warnings = ["machine.processor: Intel(R) Xeon(R) Processor @ 2.10GHz -> AMD EPYC 9B14"]
    causes = ["settings.PRECISION: none -> bf16"]
    compared = Comparison("2026-11-25 10:30 UTC", changes, warnings, causes)
    answered = {"grpc": {"triton-bundle-server.1": 123_456, "triton-bundle-server.2": 98_765}}
    command("bench").show(measurements(), compared, answered)


def trace() -> None:
    steps = [
        {"name": name, "start_ms": 100.5 + 900 * n, "ms": 800.25} for n, name in enumerate(STEPS)
    ]
    timings = {
        "total_ms": 3000.0,
        "spans": [{"name": "received", "start_ms": 0.0, "ms": 1.0}, *steps],
    }
    label = {"label": "mug", "index": 504, "probability": 0.987}
    found = spans({"reading the file": 0.4, "connecting": 0.2}, 3012.0, timings)
    run("trace", {
        "scripts.settings.pictures.one": lambda *_: __file__,
        "scripts.server.running.running": lambda _: KNOWN,
        "scripts.measuring.one_request.ask_traced": lambda *_: ({"labels": [label]}, found),
    })  # fmt: skip


def rivals() -> None:
    figures = {
        compare.Cell(photo, at, name): compare.Figures(
            Estimate(rate, rate - 1, rate + 1), 12345.6, 23456.7,
            {way: Estimate(2.71, 2.5, 12.93) for way in contenders.WAYS if way != name},
        )
        for photo in ("8.5 MP", "500x375")
        for at in (1, 4)
        for name, rate in (("bundle", 108.5), ("bundle-grpc", 110.1), ("bundle-socket", 99.9),
                           ("textbook", 17.7), ("fastapi", 42.5), ("bentoml", 39.1))
    }  # fmt: skip
    compare.show(figures)


def status() -> None:
    counts = [{"model": name, "version": "12", "answered": 1_234_567, "failed": 12, "ms": 1234.56}
              for name in MODELS]  # fmt: skip
    told = {
        "/answered": counts,
        "/models/stats": {"model_stats": [{"name": name, "version": "12"} for name in MODELS]},
        "/shadows": [],
        "": {"version": "2.72.0"},
    }
    run("status", {
        "scripts.stacks.state.load": lambda: KNOWN,
        "scripts.server.served.find_served_version": lambda: VERSION,
        "scripts.stacks.flavour.stack": lambda *_: STACK,
        "scripts.server.healthy.unhealthy_reason": lambda *_: None,
        "scripts.server.triton.triton_api.get": lambda _, path="": told[path],
        "scripts.repository.live.describe_network": lambda name, _: f"{name}, serving mobilenet_v2",
    })  # fmt: skip


def models() -> None:
    index = [Model(name, "12", "READY") for name in MODELS]
    index += [Model("birds_onnx", "3", "UNAVAILABLE", "unloaded by a user who asked for it")]
    made = "resnet50 with weights of /home/ann/models/birds/2026/checkpoint-000123.pth, opset 17"
    manifest = SimpleNamespace(describe=lambda: made)
    run("models", {
        "scripts.server.model_control.server": lambda: KNOWN,
        "scripts.server.model_control.index": lambda _: index,
        "scripts.server.model_control.pipeline": set,
        "scripts.artefacts.manifest.Manifest.load": lambda _: manifest,
    })  # fmt: skip


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


def doctor() -> None:
    found = [
        Finding("system", OK, "Linux x86_64, glibc 2.36"),
        Finding("http port", FAILURE, "8000 is used by python3.11 (pid 4242)",
                "stop it, or make up HTTP_PORT=8100"),
        Finding("weights", WARNING, "torchvision's are not available: the index cannot be reached",
                "WEIGHTS=file.pth; or to see it run, as make demo does, ARCH=drawn"),
    ]  # fmt: skip
    with patch.object(command("doctor"), "examine", lambda _: found):
        command("doctor").main()


def drift() -> None:
    moved = [{"class": "television, television system", "then": 0.992, "now": 0.0}]
    told = [{"model": STEPS[1], "version": "12", "answers": 12_345, "wanted": 1000, "taken": 1.7e9,
             "index": {"class": 14.75, "confidence": 2.04}, "moved": moved}]  # fmt: skip
    known = SimpleNamespace(flavour="cpu", http=SERVER, require_one_server=lambda: None)
    run("drift", {
        "scripts.stacks.state.load": lambda: known,
        "scripts.server.triton.triton_api.get": lambda *_: told,
        "scripts.repository.live.describe_network": lambda name, _: f"{name}, serving mobilenet_v2",
    })  # fmt: skip


def prune() -> None:
    module = command("prune")
    items = [module.Item("version 11, previous", 123_456_789, 12, ""),
             module.Item("build/cache/hub/checkpoints/mobilenet_v2-7ebf99e0.pth", 14_200_000, 45,
                         "older than 30 days")]  # fmt: skip
    tables.show("rrll", ("size", "days", "what", "can go"), map(module.make_row, items))


def command(name: str) -> Any:
    (path,) = (each for folder in ("scripts/commands/*", "extensions/*/commands")
               for each in ROOT.glob(f"{folder}/{name}.py"))  # fmt: skip
    return import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def run(name: str, replaced: dict[str, Any]) -> None:
    """With other functions in the place of those that ask or read."""
    with ExitStack() as held:
        for each, by in replaced.items():
            held.enter_context(patch(each, by))
        command(name).main()


def evaluated() -> None:
    classes = [f"class number {number} of the birds" for number in range(12)]
    truth = np.arange(600) % 12
    first = np.where(np.arange(600) % 7, truth, (truth + 1) % 12)
    answers = Answers(classes, truth, first[:, None], np.full(600, 0.987))
    original = "birds.pth in PyTorch", np.where(np.arange(600) % 9, truth, (truth + 1) % 12)
    figures = compute_figures(
        answers, np.full(600, 12345.6), 60.0, {"broken.jpg": "no picture"}, original
    )
    told = evaluation.warnings(figures, 3, "build/eval/20261126T103000Z")
    command("eval").show(figures, told, "version 12: mobilenet_v2, weights birds.pth, bf16")


def help_() -> None:
    subprocess.run(["make", "help", "ALL=1"], cwd=ROOT, check=True)


def keys() -> None:
    clients = [("the-web-shop-of-our-company", "12.5"), ("ann", "any")]
    module = command("keys")
    with patch.object(module, "list_clients", lambda: clients), patch.object(module, "lock"):
        module.main()


PHOTO = "holiday photos of 2026/on the beach/IMG_20260704_123456789_HDR.jpg"


def classify() -> None:
    """One picture, one of several, and what is none."""
    names = "television, television system, TV set", "mug"
    labels = tuple(Label(n, name, 0.9 / (n + 1)) for n, name in enumerate(names))
    fault = PictureRefused("is not a picture: it begins as a PDF does", "send a JPEG or PNG")
    answers = Result(PHOTO, labels, 12345.6), Result(PHOTO, error=fault)
    for sources in ([PHOTO], [PHOTO, PHOTO]):
        write = asking.print_as(asking.for_people(sources))
        asking.report(iter(answers), 1, write, counts=False)


def detect() -> None:
    box = Box("the second car of a neighbour", 0.987, 12.5, 1234.5, 3456.7, 4567.8)
    print(boxes_as_table(Detected(PHOTO, (box,), 12345.6), console.out))


def audit() -> None:
    flaws = {"pillow 11.0.0": ["CVE-2026-12345", "GHSA-abcd-efgh-ijkl", "PYSEC-2026-1"]}
    package = SimpleNamespace(title="pillow 11.0.0", where=["layer tools", "image server"])
    answer = SimpleNamespace(asked="2026-11-25", flaws=flaws, lacking=lambda _: 3)
    run("audit", {
        "extensions.upkeep.audit.of_layers": lambda: [package],
        "extensions.upkeep.commands.audit.in_images": list,
        "extensions.upkeep.commands.audit.ask_osv": lambda _: answer,
    })  # fmt: skip


def similar() -> None:
    module = command("similar")
    found = [module.Found(0.98765, PHOTO, "mobilenet_v2 (untrained)")]
    tables.show("rl", (), map(module.make_row, found))


def torture() -> None:
    name = "1,000 clients that open a connection and say nothing, again for its memory (2 of 3)"
    memory = (512_000_000, 1_234_000_000, 523_000_000)
    rows = [
        torturing.Row(name, "it went on", "", 12_345, 0, 0, 12.34, memory, restored)
        for restored in (12.3, None)
    ]
    torturing._show(rows, 0.123)


SHOWN = {
    "bench": bench, "eval": evaluated, "trace": trace, "rivals": rivals, "status": status,
    "models": models, "history": history, "doctor": doctor, "drift": drift, "prune": prune,
    "help": help_, "keys": keys, "classify": classify, "detect": detect, "audit": audit,
    "similar": similar, "torture": torture,
}  # fmt: skip


def main(names: list[str]) -> int:
    for name in names or SHOWN:
        print(f"=== {name} {Path(__file__).name}", flush=True)
        SHOWN[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
