"""A light stream of real requests while a version is switched: what came of each of them."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

THREADS = 2
PAUSE_S = 0.01
TIMEOUT_S = 30


@dataclass(frozen=True)
class Answer:
    version: int  # that was asked
    picture: int
    ms: float
    label: int | None  # None: it failed
    fault: str = ""


@dataclass
class Stream:
    """Asks until the block ends. The share of the candidate may be changed while it runs."""

    address: str
    model: str
    pictures: Sequence[bytes]
    serves: int
    candidate: tuple[str, int] | None = None  # its model, and its version
    share: float = 0.0  # of the requests that go to the candidate
    _answers: list[Answer] = field(default_factory=list, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def __enter__(self) -> Stream:
        for offset in range(THREADS):
            thread = threading.Thread(target=self._ask_on, args=(offset,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def all(self) -> list[Answer]:
        return list(self._answers)

    def taken(self) -> int:
        """A mark, for what comes since."""
        return len(self._answers)

    def since(self, mark: int) -> list[Answer]:
        return self._answers[mark:]

    def _ask_on(self, offset: int) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        owed = 0.0
        asked: Counter[int] = Counter({self.serves: offset})
        while True:
            if self._stop.wait(PAUSE_S):
                return
            model, version = self.model, self.serves
            owed += self.share
            if self.candidate and owed >= 1:
                owed -= 1
                model, version = self.candidate
            picture = asked[version] % len(self.pictures)
            asked[version] += 1
            began = time.perf_counter()
            label, fault = None, ""
            try:
                label = int(ask(connection, model, self.pictures[picture]).argmax())
            except (OSError, http.client.HTTPException, ValueError) as raised:
                connection.close()
                fault = str(raised) or type(raised).__name__
            ms = 1000 * (time.perf_counter() - began)
            self._answers.append(Answer(version, picture, ms, label, fault))


def ask(connection: http.client.HTTPConnection, model: str, picture: bytes) -> NDArray[Any]:
    """The probabilities; ValueError with what the server says where it gives none."""
    headers = {"Inference-Header-Content-Length": "0"}
    connection.request("POST", f"/v2/models/{model}/infer", picture, headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise ValueError(f"HTTP {answer.status}: {body[:200].decode(errors='replace')}")
    head = int(answer.headers["Inference-Header-Content-Length"])
    return np.frombuffer(body[head:], np.float32)
