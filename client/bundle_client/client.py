"""The synchronous client."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Self, TypeAlias, TypeVar

from . import answers
from .answers import Detected, Embedding, Form, Label, Result, Segmented, Sentiment
from .errors import ClientError, PictureRefused, SoundRefused, TextRefused
from .frames import Watched, Watching
from .server import AHEAD, TIMEOUT_S, Protocol, check_positive, main_model, server
from .sources import (
    MAX_BYTES,
    PICTURES,
    SOUNDS,
    Kind,
    Source,
    Sources,
    expand,
    name_in_errors,
    name_of,
    read,
)
from .transport.connection import Connection, knock, load
from .transport.faults import patiently, translate_faults

T = TypeVar("T")

# An answer for one source, whatever was asked.
Ask: TypeAlias = Callable[[Source], T]


class Client:
    """Asks over HTTP or gRPC; may be shared by threads, and over HTTP by processes that are forked
    off, each of which gets its own connection."""

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection; those of other threads end with their threads."""
        if self._mine.__dict__.pop("process", None) == os.getpid():
            self._mine.connection.close()

    def classify(self, source: Source, top: int = 5) -> Result:
        """The `top` likeliest labels for one picture; raises a `ClientError`."""
        check_positive(top=top)
        with name_in_errors(source):
            answer, ms = self._ask(source, answers.LABELS, self.model, top)
            return Result(name_of(source), answers.read_labels(answer), ms)

    def _ask(
        self, source: Source, form: Form, model: str, top: int = 0, kind: Kind = PICTURES
    ) -> tuple[Any, float]:
        """The answer, and in how many milliseconds it came."""
        file = read(source, self._max_bytes, self.server.timeout, kind)
        connection = self._connection()
        if not form.is_of_labels:
            load(self.server.protocol)  # not part of the answer's time
        started = time.perf_counter()
        model = model or self._main_model(connection)
        answer = self._patiently(lambda: connection.ask(form, model, file, top))
        return answer, (time.perf_counter() - started) * 1e3

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
        return self._many(sources, lambda source: self.classify(source, top), Result, concurrency)

    def embed(self, source: Source, model: str = answers.VECTORS.model) -> Embedding:
        """A picture as a vector, by the service of `make similar`; raises a `ClientError`."""
        with name_in_errors(source):
            with answers.of_the_service():
                answer, ms = self._ask(source, answers.VECTORS, model)
            return answers.read_vector(name_of(source), answer, ms)

    def embed_many(self, sources: Sources, concurrency: int = 4) -> Iterator[Embedding]:
        """A vector for each picture, as `classify_many` gives results."""
        check_positive(concurrency=concurrency)
        return self._many(sources, self.embed, Embedding, concurrency)

    def sentiment(self, *texts: str, model: str = answers.TEXTS.model) -> list[Sentiment]:
        """How each of the texts is meant; raises a `ClientError`."""
        if not texts:
            return []
        connection = self._connection()
        try:
            answer = self._patiently(lambda: connection.ask(answers.TEXTS, model, texts))
        except PictureRefused as exc:
            raise TextRefused(exc.cause, exc.remedy) from exc
        return answers.read_sentiments(texts, answer)

    def place(self, pixels: Any, model: str = answers.ARRAYS.model) -> tuple[Label, ...]:
        """The likeliest classes of pixels [height, width, 3], from 0 to 255; raises a
        `ClientError`."""
        connection = self._connection()
        answer = self._patiently(lambda: connection.ask(answers.ARRAYS, model, pixels))
        return answers.read_labels(answer, *answers.ARRAYS.outputs)

    def detect(self, source: Source, model: str = answers.BOXES.model) -> Detected:
        """What is where in a picture; raises a `ClientError`."""
        with name_in_errors(source):
            answer, ms = self._ask(source, answers.BOXES, model)
            return Detected(name_of(source), answers.read_boxes(answer), ms)

    def segment(self, source: Source, model: str = answers.MASKS.model) -> Segmented:
        """What each pixel of a picture belongs to; raises a `ClientError`."""
        with name_in_errors(source):
            answer, ms = self._ask(source, answers.MASKS, model)
            return Segmented(name_of(source), *answers.read_mask(answer), ms)

    def hear(self, source: Source, top: int = 5, model: str = answers.SOUNDS.model) -> Result:
        """The `top` likeliest labels for one sound, a WAV file; raises a `ClientError`."""
        check_positive(top=top)
        with name_in_errors(source):
            try:
                answer, ms = self._ask(source, answers.SOUNDS, model, top, SOUNDS)
            except PictureRefused as exc:
                raise SoundRefused(exc.cause, exc.remedy) from exc
            return Result(name_of(source), answers.read_labels(answer), ms)

    def watch(
        self, frames: Iterable[Source], top: int = 5, model: str = answers.FRAMES.model
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

    def _many(
        self, sources: Sources, ask: Ask[T], failed: Callable[..., T], concurrency: int
    ) -> Iterator[T]:
        """`failed`: of a source's name and its error, what is given in the place of an answer."""
        jobs: SimpleQueue[tuple[Future[T], Source] | None] = SimpleQueue()
        window: deque[Future[T]] = deque()

        def work() -> None:
            while job := jobs.get():
                future, source = job
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(ask(source))
                    except ClientError as exc:
                        future.set_result(failed(name_of(source), error=exc))
                    except BaseException as exc:
                        future.set_exception(exc)
            self.close()

        for _ in range(concurrency):
            # Not ThreadPoolExecutor, for which Python waits at its exit, after Ctrl-C as well.
            threading.Thread(target=work, daemon=True).start()
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

    def _connection(self) -> Connection:
        """This thread's; a process that is forked off has its own, or one would read what another
        has asked for."""
        if self._mine.__dict__.get("process") != os.getpid():
            patiently(partial(knock, self.server), lambda: self._met)
            self._mine.connection = Connection(self.server, asynchronous=False)
            self._mine.process = os.getpid()
        connection: Connection = self._mine.connection
        return connection
