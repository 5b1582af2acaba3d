"""A closed loop of clients: each sends its next question when the last one is answered.

As light on the processor as Python allows, since it shares the machine with what it measures:
threads that wait in the kernel, one kept connection each, the same bytes again and again.
"""

from __future__ import annotations

import http.client
import itertools
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.base.errors import UserError

ANSWER_TIMEOUT_S = 60

# Of a question to Triton that is nothing but the bytes of a picture.
RAW = {"Inference-Header-Content-Length": "0"}


@dataclass(frozen=True)
class Question:
    address: str
    path: str
    headers: Mapping[str, str]
    pictures: Sequence[bytes]  # sent in turn

    def ask(self, connection: http.client.HTTPConnection, picture: bytes) -> bytes:
        connection.request("POST", self.path, picture, dict(self.headers))
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            message = body[:200].decode(errors="replace")
            raise UserError(
                f"http://{self.address}{self.path} answers {answer.status}: {message}",
                "only servers that answer can be compared",
            )
        return body

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=ANSWER_TIMEOUT_S)


@dataclass(frozen=True)
class Round:
    images_per_second: float
    latencies: list[float]  # of every answer, in seconds

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


@dataclass(frozen=True)
class Answer:
    client: int
    sent: float
    came: float


def measure(question: Question, concurrency: int, seconds: float) -> Round:
    answers: list[Answer] = []
    faults: list[Exception] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        connection = question.connect()
        pictures = itertools.cycle(question.pictures)
        try:
            while not faults and (sent := time.perf_counter()) < end:
                question.ask(connection, next(pictures))
                answers.append(Answer(number, sent, time.perf_counter()))
        except Exception as fault:
            faults.append(fault)
        finally:
            connection.close()

    clients = [
        threading.Thread(target=client, args=(number,), daemon=True)
        for number in range(concurrency)
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    if faults:
        fault = faults[0]
        if isinstance(fault, UserError):
            raise fault
        raise UserError(f"http://{question.address} broke off under load: {fault!r}", "see its log")
    return summary(answers, concurrency, end)


def summary(answers: list[Answer], concurrency: int, end: float) -> Round:
    """Counted from the answer that shows every client at work, to the last one before the end:
    between two answers, so that what is under way at either edge counts for nothing. Of a round
    too short for that, all of it."""
    answers = sorted(answers, key=lambda answer: answer.came)
    first: dict[int, float] = {}
    for answer in answers:
        first.setdefault(answer.client, answer.came)
    begin = max(first.values())
    counted = [answer for answer in answers if begin < answer.came <= end]
    if len(counted) < 2 * concurrency:
        begin, counted = min(answer.sent for answer in answers), answers
    return Round(
        len(counted) / (counted[-1].came - begin),
        [answer.came - answer.sent for answer in counted],
    )
