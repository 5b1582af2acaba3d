"""What is said of a candidate that does not answer in time."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from bundle_door.answers import Answer
from bundle_door.paths.candidates import Sharing
from bundle_door.requests import Note, Request
from bundle_door.served import Candidate

CANDIDATE = Candidate("m_candidate", "2", share=100)


@pytest.mark.parametrize(("live_s", "is_its_fault"), [(0.0, True), (0.2, False)])
def test_what_takes_the_live_version_as_long_is_no_fault_of_the_candidates(
    live_s: float, is_its_fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a large picture after small ones."""
    monkeypatch.setattr("bundle_door.paths.candidates.LEAST_S", 0.2)
    told: list[Any] = []

    async def answer(request: Request, named: Mapping[str, str]) -> Answer:
        await asyncio.sleep(60 if named["model"] == CANDIDATE.model else live_s)
        return Answer(b"{}")

    observed: Any = SimpleNamespace(request=lambda *one: told.append(one))
    served: Any = SimpleNamespace(candidates={"m": CANDIDATE}, find_elsewhere=lambda model: None)
    shadowing: Any = None
    sharing = Sharing(answer, "", observed, served, shadowing)
    request = Request("POST", "/", {}, note=Note("id"))
    given = asyncio.run(sharing(request, {"model": "m", "version": ""}))
    assert given.status == 200 and not request.note.answered_by
    assert [status for _, status, _ in told] == [500] * is_its_fault
