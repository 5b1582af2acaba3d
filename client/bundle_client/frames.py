"""Frames of a video over a gRPC stream, and their labels."""

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from .answers import FRAMES, Label, not_understood, question, read_labels
from .errors import ServerBusy
from .server import Server, check_positive
from .sources import Source, array_file, name_in_errors, read
from .transport.connection import knock, load, make_headers, over_grpc
from .transport.faults import patiently, translate_faults

MOST_SEQUENCES = 2**53
# The server answers a fault with its status, instead of its text alone, and ends the stream.
WITH_STATUS = {"triton_grpc_error": "true"}
# Of a server that does not know the sequence: a new version has come, or its process was replaced.
UNKNOWN_SEQUENCE = "must specify the START flag"
# Of one whose process has died. Requests are asked again by the door, messages of a stream are not.
DEAD_PROCESS = "Stub process '"
REPLACED = "its keeper starts another one; try again in a few seconds"


@dataclass(frozen=True, slots=True)
class Watched:
    """What a video shows at one of its frames: labels, likeliest first, smoothed over `frames`
    frames. Where that is 1 again, the server has begun anew."""

    number: int
    labels: tuple[Label, ...]
    frames: int
    ms: float


def nothing() -> bytes:
    """The smallest picture."""
    import numpy as np

    return array_file(np.zeros((1, 1), np.uint8))


class Sequence:
    """The frames of one video, each sent when the one before it is answered: an ensemble's steps
    do not keep the order of what they work on at once."""

    def __init__(self, server: Server, model: str, top: int) -> None:
        self._server, self._model, self._top = server, model, top
        self._stub: Any = None  # None: no stream is open
        self._answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self._begin()

    def _begin(self) -> None:
        # Not by random: a program may seed it, as another one does that watches another video.
        self._number = 1 + secrets.randbelow(MOST_SEQUENCES - 1)
        self._begun = False

    def ask(self, picture: bytes) -> tuple[tuple[Label, ...], int]:
        """Its labels, and how many frames are in them; raises what the connection raises."""
        try:
            answer = self._ask(picture)
        except Exception as fault:
            if not self._begun or UNKNOWN_SEQUENCE not in str(fault):
                raise
            self._begin()
            answer = self._ask(picture)
        frames = answer.as_numpy("FRAMES")
        if frames is None or frames.size != 1:
            raise not_understood("no number of frames in it")
        return read_labels(answer), int(frames.item())

    def _ask(self, picture: bytes) -> Any:
        if self._stub and not self._answers.empty():  # it has ended between two frames
            self._hang_up()
        self._send(picture, sequence_start=not self._begun)
        try:
            answer, fault = self._answers.get(timeout=self._server.timeout)
        except Empty:
            self._hang_up()
            self._begin()  # who is silent is not asked to end it either
            raise TimeoutError from None
        if fault:
            self._hang_up()
            if DEAD_PROCESS in str(fault):
                raise ServerBusy("a process of the server has died", REPLACED) from fault
            raise fault
        self._begun = True
        return answer

    def _send(self, picture: bytes, **flags: bool) -> None:
        tensors = load("grpc")
        if self._stub is None:
            self._stub = over_grpc(tensors, self._server)
            answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
            self._answers = answers
            self._stub.start_stream(
                lambda result, error: answers.put((result, error)),
                headers={**make_headers(self._server), **WITH_STATUS},
            )
        asked = question(tensors, FRAMES, self._model, picture, self._top)
        self._stub.async_stream_infer(**asked, sequence_id=self._number, **flags)

    def _hang_up(self) -> None:
        stub, self._stub = self._stub, None
        stub.stop_stream(cancel_requests=True)
        stub.close()

    def end(self) -> None:
        """Gives its place on the server back, with a picture that nobody asks about. Otherwise the
        server does so when no frame has come for a while."""
        if self._stub is None and not self._begun:
            return
        with suppress(Exception):  # it does so then
            self._send(nothing(), sequence_start=not self._begun, sequence_end=True)
            self._answers.get(timeout=self._server.timeout)
        self._begun = False
        self._hang_up()


class Watching:
    """Asks about the frames of one video."""

    def __init__(self, server: Server, model: str, top: int, max_bytes: int) -> None:
        check_positive(top=top)
        if server.protocol != "grpc":
            raise ValueError('frames are sent as a stream, over gRPC: Client(…, protocol="grpc")')
        self._server, self._max_bytes = server, max_bytes
        self._sequence = Sequence(server, model, top)
        self._number = 0

    def ask_about(self, frame: Source) -> Watched:
        """What it shows; raises a `ClientError`."""
        if not self._number:
            knock(self._server)
        self._number += 1
        with name_in_errors(frame):
            picture = read(frame, self._max_bytes, self._server.timeout)
            started = time.perf_counter()
            labels, smoothed = patiently(partial(self._ask, picture), lambda: self._number > 1)
            ms = (time.perf_counter() - started) * 1e3
        return Watched(self._number, labels, smoothed, ms)

    def _ask(self, picture: bytes) -> tuple[tuple[Label, ...], int]:
        with translate_faults(self._server.url, self._server.timeout):
            return self._sequence.ask(picture)

    def end(self) -> None:
        self._sequence.end()
