"""Both clients against a server that does as it is told."""

import asyncio
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from ssl import SSLEOFError
from subprocess import run
from typing import Any
from unittest.mock import Mock

import pytest
from PIL import Image

from bundle_client import (
    AsyncClient,
    Client,
    ClientError,
    Label,
    ModelUnavailable,
    PictureRefused,
    Result,
    ServerBusy,
    ServerFault,
    ServerUnreachable,
    Source,
    SourceError,
)
from bundle_client.server import MODEL
from bundle_client.transport import faults
from tests.client.stand_in import LIMIT, StandIn, handler

Many = Callable[..., list[Result]]


def many_sync(url: str, sources: list[Source], concurrency: int, **settings: float) -> list[Result]:
    with Client(url, **settings) as client:  # type: ignore[arg-type]
        return list(client.classify_many(sources, concurrency=concurrency))


def many_async(
    url: str, sources: list[Source], concurrency: int, **settings: float
) -> list[Result]:
    async def ask() -> list[Result]:
        async with AsyncClient(url, **settings) as client:  # type: ignore[arg-type]
            return [r async for r in client.classify_many(sources, concurrency=concurrency)]

    return asyncio.run(ask())


both = pytest.mark.parametrize("many", [many_sync, many_async])


def one(url: str, source: Source, **settings: object) -> Result:
    with Client(url, **settings) as client:  # type: ignore[arg-type]
        return client.classify(source)


def one_async(url: str, source: Source, **settings: object) -> Result:
    async def ask() -> Result:
        async with AsyncClient(url, **settings) as client:  # type: ignore[arg-type]
            return await client.classify(source)

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [one, one_async])
def test_a_busy_server_is_asked_again(
    stand_in: StandIn, ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(stand_in.url, b"busy").labels[0].label == "busy"
    monkeypatch.setattr(faults, "MOST_AGAIN", 1)
    with pytest.raises(ServerBusy, match="9 requests are in flight; wait"):
        ask(stand_in.url, b"busy")


@pytest.mark.parametrize("ask", [one, one_async])
def test_a_busy_server_is_left_alone_as_long_as_it_asks(
    stand_in: StandIn, ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.retry_after, waited, sleep = "17", list[float](), asyncio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    # Here alone: what other tests have started sleeps, too.
    monkeypatch.setattr(faults, "time", Mock(sleep=waited.append))
    assert ask(stand_in.url, b"busy").labels[0].label == "busy"
    assert waited == [17, 17]


@contextmanager
def serve(port: int = 0) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", port), handler(StandIn())) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def ask_twice(url: str, gone: Callable[[], None]) -> str:
    with Client(url) as client:
        client.classify(b"last")
        gone()
        return client.classify(b"mug").labels[0].label


def ask_twice_anew(url: str, gone: Callable[[], None]) -> str:
    """As another thread would, on a connection of its own."""
    with Client(url) as client:
        client.classify(b"last")
        client.close()
        gone()
        return client.classify(b"mug").labels[0].label


def ask_twice_async(url: str, gone: Callable[[], None]) -> str:
    async def ask() -> str:
        async with AsyncClient(url) as client:
            await client.classify(b"last")
            gone()
            return (await client.classify(b"mug")).labels[0].label

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [ask_twice, ask_twice_anew, ask_twice_async])
def test_a_server_that_is_gone_for_a_while_is_asked_again(
    ask: Callable[[str, Callable[[], None]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as first, ExitStack() as second:
        port = first.enter_context(serve())

        def go() -> None:
            first.close()
            back = threading.Timer(0.3, lambda: second.enter_context(serve(port)))
            second.callback(back.join)
            back.start()

        assert ask(f"127.0.0.1:{port}", go) == "mug"
    monkeypatch.setattr(faults, "MOST_AGAIN", 1)
    with pytest.raises(ServerUnreachable, match="refused"):
        ask(f"127.0.0.1:{port}", go)  # and one that was never met, at once


def test_how_long_a_busy_server_is_asked_again() -> None:
    shortest, longest = (sum(faults.pauses(which)) for which in (min, max))
    assert (round(shortest), round(longest)) == (5, 15)


@pytest.mark.parametrize("ask", [one, one_async])
def test_the_servers_main_pipeline_is_asked(stand_in: StandIn, ask: Callable[..., Result]) -> None:
    stand_in.main = "birds"
    assert ask(stand_in.url, b"wren").labels[0].label == "wren"
    with pytest.raises(ModelUnavailable):
        ask(stand_in.url, b"wren", model="ensemble_python_resnet50")


@pytest.mark.parametrize("ask", [one, one_async])
def test_one_picture(stand_in: StandIn, ask: Callable[..., Result]) -> None:
    result = ask(stand_in.url, b"mug")
    assert result.labels == (Label(3, "mug", 0.75),)
    assert result.ms > 0


@pytest.mark.parametrize("ask", [one, one_async])
@pytest.mark.parametrize(
    ("source", "settings", "kind"),
    [
        (b"bad", {}, PictureRefused),
        (b"mug", {"model": "x"}, ModelUnavailable),
        (bytes(LIMIT), {}, PictureRefused),
        (b"gone", {}, ServerFault),
        (b"silent", {"timeout": 0.3}, ServerFault),
    ],
)
def test_one_picture_in_trouble(
    stand_in: StandIn,
    ask: Callable[..., Result],
    source: Source,
    settings: dict[str, object],
    kind: type[ClientError],
) -> None:
    with pytest.raises(ClientError) as raised:
        ask(stand_in.url, source, **settings)
    assert type(raised.value) is kind


@pytest.mark.parametrize("ask", [one, one_async])
def test_an_error_says_which_picture_it_is_about(
    stand_in: StandIn, ask: Callable[..., Result]
) -> None:
    with pytest.raises(SourceError, match=r"^/none\.jpg: no such file; check the path$"):
        ask(stand_in.url, "/none.jpg")
    with pytest.raises(PictureRefused, match=r"^<3 bytes>: not a picture; send one$"):
        ask(stand_in.url, b"bad")
    with pytest.raises(ModelUnavailable, match=f"^{stand_in.url}: "):
        ask(stand_in.url, b"mug", model="x")


@pytest.mark.parametrize("ask", [one, one_async])
def test_half_an_answer(stand_in: StandIn, ask: Callable[..., Result]) -> None:
    with pytest.raises(ServerFault, match="closed the connection"):
        ask(stand_in.url, b"cut")
    started = time.monotonic()
    with pytest.raises(ServerFault, match=r"no answer within 0\.3 s"):
        ask(stand_in.url, b"drip", timeout=0.3)
    assert time.monotonic() - started < 8


def test_a_connection_closed_while_idle_is_opened_again(stand_in: StandIn) -> None:
    with Client(stand_in.url) as client:
        for picture in (b"last", b"last", b"mug"):
            assert client.classify(picture).labels[0].label == picture.decode()

    async def ask() -> None:
        async with AsyncClient(stand_in.url) as client:
            for picture in (b"last", b"last", b"mug"):
                assert (await client.classify(picture)).labels[0].label == picture.decode()

    asyncio.run(ask())


@pytest.mark.parametrize("fault", [ConnectionResetError, SSLEOFError])
def test_a_connection_that_is_reset_before_it_stands_is_opened_again(
    fault: type[OSError], stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, tried = HTTPConnection.connect, list[HTTPConnection]()

    def reset_once(line: HTTPConnection) -> None:
        tried.append(line)
        if len(tried) == 1:
            raise fault
        connect(line)

    monkeypatch.setattr(HTTPConnection, "connect", reset_once)
    with Client(stand_in.url, model=MODEL) as client:
        assert client.classify(b"mug").labels[0].label == "mug"
    assert len(tried) == 2


@pytest.mark.parametrize("fault", [BrokenPipeError, SSLEOFError])
def test_an_answer_counts_though_not_all_was_sent(
    fault: type[OSError], stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = HTTPConnection.request

    def fail(*arguments: Any) -> None:
        request(*arguments)
        raise fault

    monkeypatch.setattr(HTTPConnection, "request", fail)
    with Client(stand_in.url, model=MODEL) as client, pytest.raises(PictureRefused):
        client.classify(b"bad")


@both
def test_results_come_in_the_order_of_the_sources(stand_in: StandIn, many: Many) -> None:
    results = many(stand_in.url, [b"slow", b"one", b"two", b"slow", b"three"], 3)
    assert [r.labels[0].label for r in results] == ["slow", "one", "two", "slow", "three"]


@both
def test_one_failure_does_not_stop_the_others(stand_in: StandIn, many: Many) -> None:
    sources = [b"one", b"bad", "/none.jpg", b"gone", b"two", b"silent", b"three"]
    results = many(stand_in.url, sources, 2, timeout=1)
    kinds = [type(r.error).__name__ if r.error else r.labels[0].label for r in results]
    assert kinds == [
        *("one", "PictureRefused", "SourceError", "ServerFault", "two", "ServerFault", "three")
    ]


@both
def test_what_no_file_can_be_does_not_stop_the_others(stand_in: StandIn, many: Many) -> None:
    """A picture that Pillow has opened, and cannot read; and a path that the system cannot."""
    file = io.BytesIO()
    Image.effect_noise((300, 300), 50).save(file, "PNG")
    second = file.getvalue().rindex(b"IDAT")
    damaged = Image.open(io.BytesIO(file.getvalue()[:second] + bytes(4)))
    results = many(stand_in.url, [b"one", damaged, "a\0b.jpg", b"two"], 2)
    assert [type(result.error) for result in results] == [
        *(type(None), SourceError, SourceError, type(None))
    ]


@both
def test_no_more_at_once_than_asked_for(stand_in: StandIn, many: Many) -> None:
    many(stand_in.url, [b"slow"] * 9, 3)
    assert stand_in.most_at_once == 3


@both
def test_nothing_to_ask_about(stand_in: StandIn, many: Many) -> None:
    assert many(stand_in.url, [], 4) == []


def test_sources_are_taken_only_as_results_are(stand_in: StandIn) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"mug"

    with Client(stand_in.url) as client:
        results = client.classify_many(endless(), concurrency=2)
        for _ in range(50):
            next(results)
        assert taken < 100
        results.close()  # type: ignore[attr-defined]


def in_use() -> int:
    return threading.active_count() + len(list(Path("/proc/self/fd").iterdir()))


def test_threads_and_their_files_end_with_the_run(stand_in: StandIn) -> None:
    with Client(stand_in.url) as client:
        client.classify(b"warm")
        before = in_use()
        for _ in range(10):
            list(client.classify_many([b"mug"] * 8))
        deadline = time.monotonic() + 10
        # The server's threads end a moment after the connections do.
        while in_use() > before:
            assert time.monotonic() < deadline, "threads or files are left over"
            time.sleep(0.01)


def test_a_client_may_be_shared_by_threads(stand_in: StandIn) -> None:
    found: list[str] = []
    with Client(stand_in.url) as client:

        def ask() -> None:
            found.append(client.classify(b"mug").labels[0].label)
            client.close()

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["mug"] * 5


FORKED = """
import sys
from multiprocessing import get_context
from bundle_client import Client

client = Client(sys.argv[1])

def ask(number):
    return client.classify(b"%d" % number).labels[0].label == str(number)

assert ask(0)
with get_context("fork").Pool(4) as pool:
    print(all(pool.map(ask, range(200), chunksize=1)))
"""


def test_a_client_may_be_inherited_by_processes(stand_in: StandIn) -> None:
    asked = run([sys.executable, "-c", FORKED, stand_in.url], capture_output=True, text=True)
    assert asked.stdout == "True\n", asked.stderr


@pytest.mark.parametrize("settings", [{"top": 0}, {"concurrency": 0}])
def test_numbers_below_one_are_refused_at_once(settings: dict[str, int]) -> None:
    for client in (Client(), AsyncClient()):
        with pytest.raises(ValueError, match="must be at least 1"):
            client.classify_many([b"mug"], **settings)
