"""The messages of a stream, before Triton has them."""

import asyncio
from collections.abc import AsyncIterator
from errno import EMFILE
from pathlib import Path
from unittest.mock import AsyncMock, Mock, patch

import grpc
import pytest

from bundle_door.access import key_file
from bundle_door.access.key_file import Client
from bundle_door.access.keys import Keys
from bundle_door.answers import Refused
from bundle_door.door import MOST_BYTES, watch_memory
from bundle_door.limits import Limits, Load
from bundle_door.requests import Request
from bundle_door.streams import Admitted, Streams, code_of
from bundle_door.triton import TEXTS, Triton
from bundle_door.wire.inference import classes_of
from bundle_serving.protocol.kserve import pb

MESSAGE = pb.ModelInferRequest(model_name="echo").SerializeToString()


async def admit(file: Path, messages: AsyncIterator[bytes]) -> Admitted:
    key = key_file.add(file, Client("ann", 0.001))
    triton = Triton(file.parent, 1)
    return Admitted(messages, triton, Keys(file, None), {"authorization": f"Bearer {key}"})


async def repeat(*messages: bytes) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


def test_messages_that_wait_for_their_turn_count_as_held(tmp_path: Path) -> None:
    async def check() -> None:
        admitted = await admit(tmp_path / "api.keys", repeat(*4 * [MESSAGE]))
        messages = aiter(admitted)
        assert [await anext(messages), await anext(messages)] == 2 * [MESSAGE]
        waiting = asyncio.ensure_future(anext(messages))  # beyond its rate
        async with asyncio.timeout(60):
            while admitted.held < 4 * len(MESSAGE):
                await asyncio.sleep(0)
        assert not waiting.done()
        admitted.note_answer()
        admitted.note_answer()
        assert admitted.held == 2 * len(MESSAGE)  # and the one after it, which is read ahead
        waiting.cancel()

    asyncio.run(check())


def test_memory_is_watched_on_though_it_could_not_be_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with more connections than the process may have open files."""
    found = [OSError(EMFILE, "Too many open files"), 2 * MOST_BYTES, 2 * MOST_BYTES]
    streams = Mock(**{"is_full.return_value": False, "are_open.return_value": True})

    async def check() -> None:
        async with asyncio.timeout(10):
            ended = asyncio.Event()
            streams.end_some.side_effect = ended.set
            watching = asyncio.create_task(watch_memory(Load(Limits()), streams))
            await ended.wait()
            watching.cancel()

    monkeypatch.setattr("bundle_door.door.LOOK_S", 0.01)
    monkeypatch.setattr("bundle_door.door.find_resident_bytes", Mock(side_effect=found))
    asyncio.run(check())


def test_a_message_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        admitted = await admit(tmp_path / "api.keys", repeat(b"\x0a\x02\xff\xfe"))
        assert [message async for message in admitted] == []
        assert admitted.refused and admitted.refused.status == 400

    asyncio.run(check())


@pytest.mark.parametrize(("output", "refused"), [("SCORE", False), ("LABEL", True)])
def test_texts_have_no_classes(tmp_path: Path, output: str, refused: bool) -> None:
    """Over them Triton divides by zero, and ends."""
    described = pb.ModelConfigResponse()
    described.config.output.add(name="LABEL", data_type=TEXTS)
    asked = pb.ModelInferRequest(model_name="echo", outputs=[classes_of(output, 1)])

    async def check() -> None:
        admitted = await admit(tmp_path / "api.keys", repeat(*2 * [asked.SerializeToString()]))
        with patch.object(Triton, "ask", AsyncMock(return_value=described)) as triton:
            passed = [message async for message in admitted]
        assert (not passed, bool(admitted.refused)) == (refused, refused)
        assert triton.await_count == 1, "once in a second"

    asyncio.run(check())


def test_classes_are_refused_while_nobody_says_of_what(tmp_path: Path) -> None:
    asked = pb.ModelInferRequest(model_name="echo", outputs=[classes_of("LABEL", 1)])

    async def check() -> None:
        admitted = await admit(tmp_path / "api.keys", repeat(asked.SerializeToString()))
        with patch.object(Triton, "ask", AsyncMock(side_effect=Refused(500, "hangs"))):
            assert [message async for message in admitted] == []
        assert admitted.refused and code_of(admitted.refused) == grpc.StatusCode.INTERNAL

    asyncio.run(check())


def test_an_answer_with_status_says_that_it_is_the_last_one(tmp_path: Path) -> None:
    """As in Triton's own streams: some clients read until then."""

    async def check() -> None:
        streams = Streams(Triton(tmp_path, 1), tmp_path / "socket", Limits(), None, AsyncMock())
        streams._ask_single = AsyncMock(return_value=pb.ModelInferResponse(id="1"))
        (answer,) = [each async for each in streams._with_status(repeat(MESSAGE), 1)]
        told = pb.ModelStreamInferResponse.FromString(answer).infer_response
        assert told.id == "1" and told.parameters["triton_final_response"].bool_param

    asyncio.run(check())


@pytest.mark.parametrize(("held", "ended"), [([330 << 20], 1), (30 * [12 << 20], 4)])
def test_no_more_streams_end_than_make_room(tmp_path: Path, held: list[int], ended: int) -> None:
    """Of 30 others none, though a tenth of all would be four."""

    async def check() -> None:
        limits, nobody = Limits(), AsyncMock()
        streams = Streams(Triton(tmp_path, 1), tmp_path / "socket", limits, None, nobody)
        sizes = [*held, *30 * [1000]]
        for number, size in enumerate(sizes):
            client = "most" if number < len(held) else f"{number}"
            open_one = Mock(held=size, client=client, since=0.0, refused=None)
            streams._open[asyncio.create_task(asyncio.sleep(60))] = open_one
        assert streams.is_full()
        streams.end_some()
        gone = [each.client for each in streams._open.values() if each.refused]
        assert gone == ended * ["most"]
        for task in streams._open:
            task.cancel()

    asyncio.run(check())


def test_a_client_with_many_streams_keeps_out_nobody_else(tmp_path: Path) -> None:
    async def check() -> None:
        limits, nobody = Limits(in_flight=8), AsyncMock()
        streams = Streams(Triton(tmp_path, 1), tmp_path / "socket", limits, None, nobody)

        def open_one(client: str, since: float) -> Mock:
            opened = Mock(client=client, since=since, refused=None)
            streams._open[asyncio.create_task(asyncio.sleep(60))] = opened
            streams._make_place(client)
            return opened

        few = [open_one("few", 0.0) for _ in range(2)]
        most = [open_one("most", since) for since in (3.0, 1.0, 2.0, 4.0, 5.0, 6.0)]
        with pytest.raises(Refused, match="8 streams are open"):
            open_one("most", 7.0)
        streams._open.popitem()  # as it is answered
        few += [open_one("few", 8.0), open_one("few", 9.0)]
        assert [each.since for each in most if each.refused] == [1.0, 2.0]
        with pytest.raises(Refused):  # each has half of them
            open_one("few", 10.0)
        assert not any(each.refused for each in few)
        for task in streams._open:
            task.cancel()

    asyncio.run(check())


def test_nobody_waits_for_long_for_a_stream_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which Envoy had told just before; many of them kept the door busy."""
    monkeypatch.setattr("bundle_door.streams.LOOK_S", 0)

    async def check() -> None:
        limits, nobody = Limits(), AsyncMock()
        streams = Streams(Triton(tmp_path, 1), tmp_path / "socket", limits, None, nobody)
        told = {"stream": "1", "message": "0", "bytes": "200000"}
        async with asyncio.timeout(10):
            await streams.arriving(Request("GET", "/", {}), told)
            late = asyncio.create_task(streams.arriving(Request("GET", "/", {}), told))
            await asyncio.sleep(0)
            stream = asyncio.create_task(asyncio.sleep(0))
            streams._open[stream] = here = Mock(number="1")
            await late
        here.arrive.assert_called_once_with(0, 200_000)

    asyncio.run(check())
