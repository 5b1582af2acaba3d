"""Which requests wait for Triton, while it is started again, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bundle_door import triton
from bundle_door.answers import Refused
from bundle_door.triton import MOST_SENT, OF_AN_UNKNOWN_MODEL, Away, Triton

UNKNOWN = f"{OF_AN_UNKNOWN_MODEL}: 'net' is not found"


def outcomes(
    *faults: Refused, model: str = "net", seconds: float = 5, before: tuple[str, ...] = ()
) -> list[str]:
    """What a request gets that is refused so at first, and how often it was sent."""

    async def asked() -> list[str]:
        door = Triton(Path("no-socket"), seconds)
        left, sent = list(faults), 0

        async def call(_: float) -> str:
            nonlocal sent
            sent += 1
            if left:
                raise left.pop(0)
            return "answered"

        try:
            for known in before:
                await door._patiently(known, lambda _: asyncio.sleep(0, "answered"))
            return [await door._patiently(model, call), str(sent)]
        except Refused as refused:
            return [str(refused.status), str(sent)]
        finally:
            await door.close()

    return asyncio.run(asyncio.wait_for(asked(), 60))


def test_what_was_not_sent_waits() -> None:
    assert outcomes(*(Away(sent=False) for _ in range(5))) == ["answered", "6"]


def test_what_may_have_ended_it_is_not_sent_for_ever() -> None:
    assert outcomes(*(Away(sent=True) for _ in range(9))) == ["503", str(MOST_SENT)]


def test_a_pipeline_that_is_loaded_after_the_first_one_is_waited_for() -> None:
    faults = Away(sent=False), Refused(404, UNKNOWN)
    assert outcomes(*faults, before=("net",)) == ["answered", "3"]
    assert outcomes(*faults) == ["404", "2"]  # it never was there
    assert outcomes(faults[1], before=("net",)) == ["404", "1"]  # it was unloaded


def test_no_wait_is_longer_than_the_answer_may_take() -> None:
    assert outcomes(*(Away(sent=False) for _ in range(999)), seconds=0.5)[0] == "503"


def test_not_all_of_them_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "MOST_WAITING", 0)
    assert outcomes(Away(sent=False)) == ["503", "1"]
