"""Which requests wait for Triton, while it is started again, and for how long."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from bundle_door import triton
from bundle_door.answers import Refused
from bundle_door.triton import (
    MOST_SENT,
    OF_A_DEAD_PROCESS,
    OF_AN_UNKNOWN_MODEL,
    Away,
    Triton,
)
from bundle_door.wire.inference import Asked
from bundle_serving.process.keeper_notes import Notes
from bundle_serving.work import LATER

UNKNOWN = f"{OF_AN_UNKNOWN_MODEL}: 'net' is not found"


def outcomes(*faults: Refused, seconds: float = 5, coming: tuple[str, ...] = ()) -> list[str]:
    """What a request gets that is refused so at first, and how often it was sent; and what the
    keeper is about to load."""

    async def asked() -> list[str]:
        Notes(run_dir).announce([*coming])
        door = Triton(run_dir, seconds)
        left, sent = list(faults), 0

        async def call(_: float) -> str:
            nonlocal sent
            sent += 1
            if left:
                raise left.pop(0)
            return "answered"

        try:
            return [await door._patiently("net", call, waits=True), str(sent)]
        except Refused as refused:
            return [str(refused.status), str(sent)]
        finally:
            await door.close()

    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        return asyncio.run(asyncio.wait_for(asked(), 60))


def test_what_was_not_sent_waits() -> None:
    assert outcomes(*(Away(sent=False) for _ in range(5))) == ["answered", "6"]


def test_what_may_have_ended_it_is_not_sent_for_ever() -> None:
    assert outcomes(*(Away(sent=True) for _ in range(9))) == ["503", str(MOST_SENT)]


def test_a_pipeline_that_is_loaded_after_the_first_one_is_waited_for() -> None:
    faults = Away(sent=False), Refused(404, UNKNOWN)
    assert outcomes(*faults, coming=("other", "net")) == ["answered", "3"]
    # One that is not on its way may have come since it was asked; otherwise nobody waits for it.
    assert outcomes(*faults, coming=("other",)) == ["answered", "3"]
    assert outcomes(*faults, *faults[1:], coming=("other",)) == ["404", "3"]


DEAD = Refused(500, f"{OF_A_DEAD_PROCESS}net_0_0' is not healthy.")


@pytest.mark.parametrize(
    ("deaths", "fault", "outcome"),
    [
        (40, DEAD, "answered"),
        (10**6, DEAD, "500"),
        (40, Refused(503, f"in ensemble 'all', {LATER}"), "answered"),
    ],
)
def test_what_passes_is_waited_for_as_long_as_the_answer_may_take(
    deaths: int, fault: Refused, outcome: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a busy machine the keeper takes long to start another process."""
    monkeypatch.setattr(triton, "PAUSES_S", (0, 0.001))
    left = deaths

    async def call(*_: object) -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise fault
        return "answered"

    async def asked() -> str:
        door = Triton(tmp_path, 50 if outcome == "answered" else 1)
        monkeypatch.setattr(door, "_call", call)
        try:
            return str(await door.infer("net", Asked([b""], {}, binary_by_default=True)))
        except Refused as refused:
            return str(refused.status)
        finally:
            await door.close()

    assert asyncio.run(asyncio.wait_for(asked(), 60)) == outcome


def test_no_wait_is_longer_than_the_answer_may_take() -> None:
    assert outcomes(*(Away(sent=False) for _ in range(999)), seconds=0.5)[0] == "503"


def test_not_all_of_them_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "MOST_WAITING", 0)
    assert outcomes(Away(sent=False)) == ["503", "1"]
