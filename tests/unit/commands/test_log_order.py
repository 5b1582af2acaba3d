"""make logs: lines of several programs in one form and order."""

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.base.errors import UserError
from scripts.server import up
from scripts.server.log_order import REFUSED, order_lines, without_gpu
from scripts.settings import arguments
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import state
from scripts.stacks.state import State
from tests.shown.running import run

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
LOG = """I1120 12:27:37.262297 107 server.cc:674] "started"
2026-11-20T12:27:38.900Z keeper: the door had exited: restarted it
Traceback:
  of the keeper
2026-11-20T12:27:38.100Z door: id=1 status=200
{"time":"2026-11-20T12:29:00.000Z","source":"door","id":"2","status":200}
W1231 23:59:59.1234 107 old.cc:1] "of last year"
""".splitlines()


def test_in_the_order_of_times() -> None:
    shown = [str(each) for each in order_lines(LOG, NOW)]
    assert shown == [
        '2025-12-31T23:59:59.123Z triton W old.cc:1] "of last year"',
        '2026-11-20T12:27:37.262Z triton I server.cc:674] "started"',
        "2026-11-20T12:27:38.100Z door   id=1 status=200",
        "2026-11-20T12:27:38.900Z keeper the door had exited: restarted it\n"
        "Traceback:\n  of the keeper",
        f"2026-11-20T12:29:00.000Z door   {LOG[5]}",
    ]


def test_a_swarm_says_whose_line_it_is() -> None:
    before = "bundle_server.2.l0cghe8rodmnliqbz@node-1    | "
    (shown,) = order_lines([before + LOG[4], before + "without a time"], NOW)
    assert shown.source == "door" and shown.text == "server.2@node-1 id=1 status=200"
    assert len(shown.more) == 1
    before = "bundle_balancer.1kfpkolubvpqyc0og48ok2fkd.zkctlqrkpmjy@node-1    | "
    (shown,) = order_lines([before + LOG[4]], NOW)
    assert shown.text == "balancer@node-1 id=1 status=200"


def test_what_did_not_come_to_serve_is_marked() -> None:
    (shown,) = order_lines([f"{REFUSED}{LOG[4]}"], NOW)
    assert (shown.source, shown.text) == ("door", "refused: id=1 status=200")


def test_that_there_is_no_gpu_is_not_worth_a_line() -> None:
    at = "E1120 12:27:38.000000 107"
    why = "CUDA driver version is insufficient for CUDA runtime version"
    noise = f'{at} ensemble_scheduler.cc:1468] "unable to create stream for ensemble: {why}"'
    users = f'2026-11-20T12:27:38.100Z door: path="/{why}"'
    said = [LOG[0], noise, "Error: Failed to initialize NVML", users]
    shown = order_lines(without_gpu(said), NOW)
    assert [each.source for each in shown] == ["triton", "door"] and not shown[0].more


def test_the_last_ones() -> None:
    assert [each.source for each in order_lines(LOG, NOW, since=90)] == ["door"]
    assert [each.source for each in order_lines(LOG, NOW, most=2)] == ["keeper", "door"]


def test_a_line_with_no_time_before_all_others_is_kept() -> None:
    assert [str(each) for each in order_lines(["plain \x1b[0m"], NOW)] == [r"plain \x1b[0m"]


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("90s", 90), ("5m", 300), ("1d", 86400)])
def test_since(text: str, seconds: float | None) -> None:
    assert arguments.load({"SINCE": text}).since == seconds


@pytest.mark.parametrize("text", ["5", "m", "-5m", "5 minutes", "1.5h"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be a time such as 90s, 5m"):
        _ = arguments.load({"SINCE": text}).since


def test_what_a_first_server_said_is_there_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "2026-11-26T10:30:00.123Z keeper: no room"
    there = [said]

    def start(_: State) -> None:
        raise UserError("the server stopped during its start", "see the whole log: make logs")

    stack: Any = SimpleNamespace(
        flavour="cpu", many=None, start=start, log=lambda: there[0], stop=there.clear
    )
    monkeypatch.setattr(state, "REFUSED", tmp_path / "refused.log")
    monkeypatch.setattr(state.load, "__defaults__", (tmp_path / "state.json",))
    monkeypatch.setattr(up, "fingerprint", lambda *_: "")
    version: Any = SimpleNamespace(pipeline=SimpleNamespace(ensemble="birds"))
    with pytest.raises(UserError, match="stopped during its start"):
        up._serve(stack, Settings(DEFAULTS), version, {}, ExitStack())
    assert not there
    run("logs", {})
    assert "keeper refused: no room" in " ".join(capsys.readouterr().out.split())
