"""The synchronous client."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from .answers.arrays import MODEL as ARRAY_MODEL
from .answers.arrays import labels as labels_of_arrays
from .answers.boxes import MODEL as BOX_MODEL
from .answers.boxes import OUTPUTS as BOX_OUTPUTS
from .answers.boxes import Detected, read_boxes
from .answers.masks import MODEL as MASK_MODEL
from .answers.masks import OUTPUTS as MASK_OUTPUTS
from .answers.masks import Segmented, read_mask
from .answers.texts import MODEL as TEXT_MODEL
from .answers.texts import Sentiment, sentiments
from .answers.vectors import MODEL as VECTOR_MODEL
from .answers.vectors import Embedding, embedding, of_the_service
from .answers.wire import Label, Result, labels
from .errors import ClientError, PictureRefused, SoundRefused, TextRefused
from .frames import MODEL as VIDEO_MODEL
from .frames import Watched, Watching
from .server import Protocol, server
from .settings import AHEAD, MAX_BYTES, TIMEOUT_S, check_positive, main_model
from .sources import SOUNDS, Source, Sources, expand, name_in_errors, name_of, read
from .transport.connection import Connection, knock, load
from .transport.faults import translate_faults
from .transport.patience import patiently

SOUND_MODEL = "sounds"

T = TypeVar("T")

# An answer for one source, whatever was asked.
Ask: TypeAlias = Callable[[Source], T]


class Client:
    """Asks over HTTP or gRPC; may be shared by threads, each of which gets its own connection."""

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
        self._mine = threading.local()
        if protocol == "grpc":
            load(protocol)  # here, so that the first picture does not seem to take this long

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection; those of other threads end with their threads."""
        if connection := self._mine.__dict__.pop("connection", None):
            connection.close()

    def classify(self, source: Source, top: int = 5) -> Result:
        """The `top` likeliest labels for one picture; raises a `ClientError`."""
        check_positive(top=top)
        with name_in_errors(source):
            picture = read(source, self._max_bytes, self.server.timeout)
            connection = self._connection()
            started = time.perf_counter()
            model = self._main_model(connection)
            answer = self._patiently(partial(connection.infer, model, picture, top))
            return Result(name_of(source), labels(answer), (time.perf_counter() - started) * 1e3)

    def _patiently(self, ask: Callable[[], T]) -> T:
        def once() -> T:
            with translate_faults(self.server.url, self.server.timeout):
                answer = ask()
            self._met = True
            return answer

        return patiently(once, lambda: self._met)

    def _main_model(self, connection: Connection) -> str:
        if not self.model:
            self.model = main_model(self._patiently(connection.metadata))
        return self.model

    def classify_many(
        self, sources: Sources, top: int = 5, concurrency: int = 4
    ) -> Iterator[Result]:
        """A result for each picture, in the order of the sources, folders expanded.

        A picture that fails has its error in its result. `concurrency` pictures are read and
        asked about at once; sources are taken from an iterator only as results are.
        """
        check_positive(top=top, concurrency=concurrency)
        return self._many(sources, lambda source: self._settle(source, top), concurrency)

    def embed(self, source: Source, model: str = VECTOR_MODEL) -> Embedding:
        """A picture as a vector, by the service of `make similar`; raises a `ClientError`."""
        with name_in_errors(source):
            picture = read(source, self._max_bytes, self.server.timeout)
            with of_the_service():
                connection = self._connection()
                load(self.server.protocol)  # not part of the answer's time
                started = time.perf_counter()
                answer = self._patiently(lambda: connection.embed(model, picture))
            return embedding(name_of(source), answer, (time.perf_counter() - started) * 1e3)

    def embed_many(self, sources: Sources, concurrency: int = 4) -> Iterator[Embedding]:
        """A vector for each picture, as `classify_many` gives results."""
        check_positive(concurrency=concurrency)
        return self._many(sources, self._embed_or_error, concurrency)

    def sentiment(self, *texts: str, model: str = TEXT_MODEL) -> list[Sentiment]:
        """How each of the texts is meant; raises a `ClientError`."""
        connection = self._connection()
        try:
            answer = self._patiently(lambda: connection.judge(model, texts))
        except PictureRefused as exc:
            raise TextRefused(exc.cause, exc.remedy) from exc
        return sentiments(texts, answer)

    def place(self, pixels: Any, model: str = ARRAY_MODEL) -> tuple[Label, ...]:
        """The likeliest classes of pixels [height, width, 3], from 0 to 255; raises a
        `ClientError`."""
        connection = self._connection()
        answer = self._patiently(lambda: connection.place(model, pixels))
        return labels_of_arrays(answer)

    def detect(self, source: Source, model: str = BOX_MODEL) -> Detected:
        """What is where in a picture; raises a `ClientError`."""
        with name_in_errors(source):
            answer, ms = self._find(source, model, BOX_OUTPUTS)
            return Detected(name_of(source), read_boxes(answer), ms)

    def segment(self, source: Source, model: str = MASK_MODEL) -> Segmented:
        """What each pixel of a picture belongs to; raises a `ClientError`."""
        with name_in_errors(source):
            answer, ms = self._find(source, model, MASK_OUTPUTS)
            return Segmented(name_of(source), *read_mask(answer), ms)

    def _find(self, source: Source, model: str, outputs: tuple[str, ...]) -> tuple[Any, float]:
        picture = read(source, self._max_bytes, self.server.timeout)
        connection = self._connection()
        load(self.server.protocol)  # not part of the answer's time
        started = time.perf_counter()
        answer = self._patiently(lambda: connection.find(model, picture, outputs))
        return answer, (time.perf_counter() - started) * 1e3

    def hear(self, source: Source, top: int = 5, model: str = SOUND_MODEL) -> Result:
        """The `top` likeliest labels for one sound, a WAV file; raises a `ClientError`."""
        check_positive(top=top)
        with name_in_errors(source):
            sound = read(source, self._max_bytes, self.server.timeout, SOUNDS)
            connection = self._connection()
            started = time.perf_counter()
            try:
                answer = self._patiently(lambda: connection.infer(model, sound, top))
            except PictureRefused as exc:
                raise SoundRefused(exc.cause, exc.remedy) from exc
            return Result(name_of(source), labels(answer), (time.perf_counter() - started) * 1e3)

    def watch(
        self, frames: Iterable[Source], top: int = 5, model: str = VIDEO_MODEL
    ) -> Iterator[Watched]:
        """The likeliest labels at each frame of a video, smoothed over time; raises a
        `ClientError`. A frame is taken from `frames` once the one before it is answered."""
        return self._watch_frames(frames, Watching(self.server, model, top, self._max_bytes))

    def _watch_frames(self, frames: Iterable[Source], watching: Watching) -> Iterator[Watched]:
        try:
            for frame in frames:
                yield watching.ask_about(frame)
        finally:
            watching.end()

    def _many(self, sources: Sources, ask: Ask[T], concurrency: int) -> Iterator[T]:
        jobs: SimpleQueue[tuple[Future[T], Source] | None] = SimpleQueue()
        window: deque[Future[T]] = deque()
        for _ in range(concurrency):
            # Not ThreadPoolExecutor, for which Python waits at its exit, after Ctrl-C as well.
            threading.Thread(target=self._work, args=(jobs, ask), daemon=True).start()
        try:
            for source in expand(sources):
                window.append(Future())
                jobs.put((window[-1], source))
                if len(window) >= concurrency * AHEAD:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()
        finally:
            for future in window:
                future.cancel()
            for _ in range(concurrency):
                jobs.put(None)

    def _work(self, jobs: "SimpleQueue[tuple[Future[T], Source] | None]", ask: Ask[T]) -> None:
        while job := jobs.get():
            future, source = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(ask(source))
                except BaseException as exc:
                    future.set_exception(exc)
        self.close()

    def _settle(self, source: Source, top: int) -> Result:
        try:
            return self.classify(source, top)
        except ClientError as exc:
            return Result(name_of(source), error=exc)

    def _embed_or_error(self, source: Source) -> Embedding:
        try:
            return self.embed(source)
        except ClientError as exc:
            return Embedding(name_of(source), error=exc)

    def _connection(self) -> Connection:
        if not hasattr(self._mine, "connection"):
            patiently(partial(knock, self.server), lambda: self._met)
            self._mine.connection = Connection(self.server, asynchronous=False)
        connection: Connection = self._mine.connection
        return connection
