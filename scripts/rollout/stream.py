"""A light stream of real requests during a switch, with the result of each."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bundle_serving import infer
from bundle_serving.address import Address
from bundle_serving.infer import Question

THREADS = 2
# Between an answer and the next request: at least so long, and in terms of the answer's time; and
# while nothing is measured.
PAUSE_S, PAUSES, REST_S = 0.02, 2, 0.5
TIMEOUT_S = 30


@dataclass(frozen=True)
class Answer:
    version: int  # the version asked
    question: int
    ms: float
    gist: Hashable | None  # None: it failed
    fault: str = ""


@dataclass
class Stream:
    """Sends requests until the block ends. The candidate's share may change meanwhile."""

    address: Address
    model: str
    questions: Sequence[Question]
    gist: Callable[[infer.Answer], Hashable]
    serves: int
    candidate: tuple[str, int] | None = None  # its model and version
    share: float = 0.0  # of the requests go to the candidate
    # Of several, those that are asked for a version, while some have another one.
    servers: Mapping[int, Sequence[Address]] = field(default_factory=dict)
    _pause_s: float = field(default=PAUSE_S, init=False)
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

    @contextmanager
    def resting(self) -> Iterator[None]:
        """With few requests: as many as show that none is lost."""
        self._pause_s = REST_S
        try:
            yield
        finally:
            self._pause_s = PAUSE_S

    def all(self) -> list[Answer]:
        return list(self._answers)

    def mark(self) -> int:
        """A mark: how many results there are so far."""
        return len(self._answers)

    def answers_since(self, mark: int) -> list[Answer]:
        return self._answers[mark:]

    def _ask_on(self, offset: int) -> None:
        connections: dict[tuple[str, int], http.client.HTTPConnection] = {}
        owed = 0.0
        asked: Counter[int] = Counter({self.serves: offset})
        ms = 0.0
        while True:
            if self._stop.wait(max(self._pause_s, PAUSES * ms / 1000)):
                return
            model, version = self.model, self.serves
            candidate = self.candidate
            # Nothing is owed to one that comes later.
            owed += self.share if candidate else 0
            if candidate and owed >= 1:
                owed -= 1
                model, version = candidate
            number = asked[version]
            question = number % len(self.questions)
            asked[version] += 1
            servers = self.servers.get(version) or [self.address]
            to = servers[number % len(servers)]
            # Of several behind one address, a header names the one that is meant.
            key, headers = (to.host, to.port), to.server_header | to.uncounted_headers
            if key not in connections:
                connections[key] = replace(to, server="").connection(TIMEOUT_S)
            began = time.perf_counter()
            gist, fault = None, ""
            try:
                answer = infer.ask(connections[key], model, self.questions[question], headers)
                gist = self.gist(answer)
            except (OSError, http.client.HTTPException, ValueError) as raised:
                connections[key].close()
                fault = str(raised) or type(raised).__name__
            ms = 1000 * (time.perf_counter() - began)
            self._answers.append(Answer(version, question, ms, gist, fault))
