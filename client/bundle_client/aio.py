"""The asynchronous client."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

from . import answers
from .answers import Embedding, Form, Result
from .errors import ClientError
from .frames import Watched, Watching
from .server import AHEAD, TIMEOUT_S, Protocol, check_positive, main_model, server
from .sources import MAX_BYTES, Source, Sources, expand, name_in_errors, name_of, read
from .transport.connection import Connection, knock
from .transport.faults import patiently_async, translate_faults

T = TypeVar("T")
Ask: TypeAlias = Callable[[Source], Awaitable[T]]


class AsyncClient:
    """`Client` for asyncio; belongs to one event loop."""

    def __init__(
        self,
        url: str | None = None,
        protocol: Protocol = "http",
        model: str | None = None,
        timeout: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        api_key: str | None = None,
        ca_file: str | None = None,
        server_name: str | None = None,
    ) -> None:
        self.server = server(url, protocol, timeout, api_key, ca_file, server_name)
        self.model = model or ""  # until it is known: the server's main pipeline
        self._met = False  # whether it has answered
        self._max_bytes = max_bytes
        self._opened: Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    async def classify(self, source: Source, top: int = 5) -> Result:
        """The `top` likeliest labels for one picture; raises a `ClientError`."""
        check_positive(top=top)
        with name_in_errors(source):
            answer, ms = await self._ask(source, answers.LABELS, self.model, top)
            return Result(name_of(source), answers.read_labels(answer), ms)

    async def _ask(self, source: Source, form: Form, model: str, top: int = 0) -> tuple[Any, float]:
        """The answer, and in how many milliseconds it came."""
        file = await asyncio.to_thread(read, source, self._max_bytes, self.server.timeout)
        connection = await self._connection()
        started = time.perf_counter()
        model = model or await self._main_model(connection)
        answer = await self._patiently(lambda: connection.ask(form, model, file, top))
        return answer, (time.perf_counter() - started) * 1e3

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def once() -> T:
            with translate_faults(self.server.url, self.server.timeout):
                answer = await ask()
            self._met = True
            return answer

        return await patiently_async(once, lambda: self._met)

    async def _main_model(self, connection: Connection) -> str:
        if not self.model:
            self.model = main_model(await self._patiently(connection.metadata))
        return self.model

    def classify_many(
        self, sources: Sources, top: int = 5, concurrency: int = 4
    ) -> AsyncIterator[Result]:
        """A result for each picture, in the order of the sources; see `Client`."""
        check_positive(top=top, concurrency=concurrency)
        return self._many(sources, lambda source: self.classify(source, top), Result, concurrency)

    async def embed(self, source: Source, model: str = answers.VECTORS.model) -> Embedding:
        """A picture as a vector; see `Client`."""
        with name_in_errors(source):
            with answers.of_the_service():
                answer, ms = await self._ask(source, answers.VECTORS, model)
            return answers.read_vector(name_of(source), answer, ms)

    def embed_many(self, sources: Sources, concurrency: int = 4) -> AsyncIterator[Embedding]:
        """A vector for each picture, in the order of the sources; see `Client`."""
        check_positive(concurrency=concurrency)
        return self._many(sources, self.embed, Embedding, concurrency)

    def watch(
        self,
        frames: Iterable[Source] | AsyncIterable[Source],
        top: int = 5,
        model: str = answers.FRAMES.model,
    ) -> AsyncIterator[Watched]:
        """The likeliest labels at each frame of a video; see `Client`."""
        return self._watch_frames(
            taking(frames), Watching(self.server, model, top, self._max_bytes)
        )

    async def _watch_frames(
        self, take: Callable[[], Awaitable[Source | None]], watching: Watching
    ) -> AsyncIterator[Watched]:
        # In a thread of its own: if this is cancelled, the end is sent behind what was asked.
        pool = ThreadPoolExecutor(1)
        loop, context = asyncio.get_running_loop(), copy_context()
        try:
            while (frame := await take()) is not None:
                yield await loop.run_in_executor(pool, context.run, watching.ask_about, frame)
        finally:
            await loop.run_in_executor(pool, context.run, watching.end)
            pool.shutdown(wait=False)

    async def _many(
        self, sources: Sources, ask: Ask[T], failed: Callable[..., T], concurrency: int
    ) -> AsyncIterator[T]:
        free = asyncio.Semaphore(concurrency)
        window: deque[asyncio.Task[T]] = deque()

        async def in_turn(source: Source) -> T:
            async with free:
                try:
                    return await ask(source)
                except ClientError as exc:
                    return failed(name_of(source), error=exc)

        try:
            for source in expand(sources):
                window.append(asyncio.create_task(in_turn(source)))
                if len(window) >= concurrency * AHEAD:
                    yield await window.popleft()
            while window:
                yield await window.popleft()
        finally:
            for task in window:
                task.cancel()

    async def _connection(self) -> Connection:
        if self._opened is None:
            await patiently_async(partial(asyncio.to_thread, knock, self.server), lambda: self._met)
        # Several first pictures may have knocked at the same time; one connection serves all.
        if self._opened is None:
            self._opened = Connection(self.server, asynchronous=True)
        return self._opened


def taking(
    frames: Iterable[Source] | AsyncIterable[Source],
) -> Callable[[], Awaitable[Source | None]]:
    """Takes the next frame, which a plain iterator may have to wait for; None: there is none."""
    if isinstance(frames, AsyncIterable):
        return partial(anext, aiter(frames), None)
    return partial(asyncio.to_thread, next, iter(frames), None)
