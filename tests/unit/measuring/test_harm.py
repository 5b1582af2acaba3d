"""What those who harm a server make of one that does not answer, or is not back yet."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark import soak
from benchmark.torture import judging
from benchmark.torture.trials import Trial


@pytest.mark.parametrize("fault", [TimeoutError("timed out"), ConnectionRefusedError()])
def test_a_server_that_does_not_answer_is_harmed(
    monkeypatch: pytest.MonkeyPatch, fault: OSError
) -> None:
    good = SimpleNamespace(waits=[], peak=0, longest=0, count_failed=lambda since=0: 0)
    monkeypatch.setattr(judging, "Bystanders", lambda *_: nullcontext(good))
    subject: Any = SimpleNamespace(memory=lambda: 0, until_whole=lambda *_: None)

    def run(*_: object) -> str:
        raise fault

    row = judging._run_trial(subject, Trial("a trial", run), {}, 0)
    assert row.fault == (str(fault) or "ConnectionRefusedError")


def test_who_is_not_back_yet_is_not_killed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that loads for long, say."""
    running = iter([{"server": [None], "door": [None]}, {"server": ["a process"]}])
    killed: list[str] = []
    good = SimpleNamespace(waits=[], count_failed=lambda: 0)
    subject: Any = SimpleNamespace(memory=lambda: 0, running=lambda: next(running, {}))
    monkeypatch.setattr(soak, "harm", lambda process, how: killed.append(process))
    monkeypatch.setattr(soak, "hostile", nullcontext)
    monkeypatch.setattr(soak, "Bystanders", lambda *_, **__: nullcontext(good))
    assert soak.harm_processes(subject, 0.1, 0.01) == 0
    assert killed == ["a process"]
