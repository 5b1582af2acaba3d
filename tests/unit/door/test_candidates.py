"""Of what a candidate is asked, and what is said of one that does not answer in time."""

import asyncio
import struct
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from bundle_door.answers import Answer
from bundle_door.paths.candidates import MOST_BYTES, MOST_WAITING, Behind, Sharing
from bundle_door.paths.plain import PlainQuestions
from bundle_door.requests import Note, Request
from bundle_door.served import Candidate
from bundle_door.watching.steps import Steps
from bundle_door.wire.inference import Signature
from bundle_serving.protocol.kserve import pb

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
    sharing = Sharing(answer, observed, served, shadowing)
    request = Request("POST", "/", {}, note=Note("id"))
    given = asyncio.run(sharing(request, {"model": "m", "version": ""}))
    assert given.status == 200 and not request.note.answered_by
    assert [status for _, status, _ in told] == [500] * is_its_fault


def test_no_more_waits_behind_answers_than_has_room() -> None:
    async def check() -> None:
        ended, behind = asyncio.Event(), Behind()

        async def wait() -> None:
            await ended.wait()

        assert behind.begin(wait(), MOST_BYTES - 1) and not behind.begin(wait(), 2)
        assert all(behind.begin(wait(), 0) for _ in range(MOST_WAITING - 1))
        assert not behind.begin(wait(), 0)
        ended.set()
        async with asyncio.timeout(60):
            while not behind.begin(wait(), MOST_BYTES):
                await asyncio.sleep(0)

    asyncio.run(check())


class Texts:
    """Triton, with models that judge texts."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def signature(self, model: str, version: str) -> Signature:
        return Signature("TEXT", "BYTES", (1,), batches=True)

    async def infer(self, model: str, *_: Any) -> pb.ModelInferResponse:
        self.asked.append(model)
        found = pb.ModelInferResponse(raw_output_contents=[b"\1\0\0\0+", struct.pack("<f", 0.5)])
        found.outputs.add(name="LABEL", datatype="BYTES", shape=[1, 1])
        found.outputs.add(name="SCORE", datatype="FP32", shape=[1, 1])
        return found


def test_a_candidate_is_asked_about_texts_too() -> None:
    triton: Any = Texts()
    observed: Any = None
    served: Any = SimpleNamespace(candidates={"m": CANDIDATE}, find_elsewhere=lambda model: None)
    plain = PlainQuestions(triton, Steps(lambda report: None))
    sharing = Sharing(plain.sentiment, observed, served, observed)
    request = Request("POST", "/sentiment", {}, chunks=[b"What a day!"], note=Note("id"))
    answer = asyncio.run(sharing(request, {"model": "m", "version": ""}))
    assert answer.status == 200 and triton.asked == [CANDIDATE.model]
    assert request.note.answered_by == CANDIDATE.model
