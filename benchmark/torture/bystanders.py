"""Clients of good will, who ask while others harm the server, and what it holds meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from benchmark.torture.subject import PICTURE, Subject
from bundle_serving.protocol import kserve

PAUSE_S = 0.05
LOOK_S = 0.5
AGAIN_S = 0.5
ANSWER_S = 60
# What ran in a process that was killed is lost; afterwards nothing should be.
GRACE_S = 2


@dataclass(frozen=True)
class Wait:
    began: float
    seconds: float
    status: int  # as over HTTP; 0 where there was no answer


@dataclass
class Bystanders:
    """As long as a `with` block lasts: over HTTP with new connections, and over gRPC with one."""

    subject: Subject
    patience: float = 0  # seconds in which they ask again where they were refused
    waits: list[Wait] = field(default_factory=list)
    peak: int = 0
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Bystanders:
        for loop in (self._over_http, self._over_grpc, self._look):
            self._threads.append(threading.Thread(target=loop, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    @property
    def longest(self) -> float:
        return max((wait.seconds for wait in self.waits), default=0)

    def count_failed(self, since: float = 0) -> int:
        """Of the questions that began at that time or later."""
        return sum(wait.status != 200 for wait in self.waits if wait.began >= since)

    def _over_http(self) -> None:
        while not self._done.wait(PAUSE_S):
            began = time.monotonic()
            self._note(began, self._patiently(self.subject.ask_picture))

    def _over_grpc(self) -> None:
        with grpc.insecure_channel(
            self.subject.grpc, [("grpc.max_reconnect_backoff_ms", 500)]
        ) as channel:
            stub, asked = kserve.stub(channel), self.subject.message(PICTURE)

            def ask() -> int:
                try:
                    stub.ModelInfer(asked, timeout=ANSWER_S)
                except grpc.RpcError as fault:
                    return 503 if fault.code() == grpc.StatusCode.UNAVAILABLE else 500
                return 200

            while not self._done.wait(PAUSE_S):
                began = time.monotonic()
                self._note(began, self._patiently(ask))

    def _patiently(self, ask: Callable[[], int]) -> int:
        deadline = time.monotonic() + self.patience
        while (status := ask()) in (0, 503) and time.monotonic() < deadline:
            time.sleep(AGAIN_S)
        return status

    def _note(self, began: float, status: int) -> None:
        self.waits.append(Wait(began, time.monotonic() - began, status))

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            self.peak = max(self.peak, self.subject.memory())
