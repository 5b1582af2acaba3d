"""What each Python step tells the door of its work: when, for which requests, on how many rows.

Each execution is one line of JSON on a stream socket that the server's start names in the
environment. Without it nothing is reported. No request ever waits for it: what the door does not
read in time is left out, and counted.
"""

import json
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving import work
from bundle_serving.identity import identity
from bundle_serving.own_requests import own_requests
from bundle_serving.process import sockets, traces
from bundle_serving.process.sockets import STEPS_VARIABLE

# Kept for a door that is slow to read.
MOST_WAITING = 256 << 10
# Reports of busy times are sent together: the door then wakes up less often.
TOGETHER_S = 0.05
# The last one of a busy time does not wait for the next execution, which may never come.
LATEST_S = 1
# Remarks about single rows, of one execution.
MOST_REMARKS = 64

# The id of a request that one of the door's processes follows (bundle_door.watching.steps).
FOLLOWED = re.compile(r"door\.([0-9]{1,2})-", re.ASCII)

Remarks = dict[str, list[Any]]
ANSWERS, PICTURES = "answers", "pictures"


class Way:
    """To one process of the door."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._waiting = b""
        self._waited_for = False
        self._sent = 0.0

    def add(self, line: bytes, is_waited_for: bool) -> bool:
        """False if there is no room for it."""
        if len(self._waiting) > MOST_WAITING:
            return False
        self._waiting += line
        self._waited_for |= is_waited_for
        return True

    def send(self) -> None:
        now = time.monotonic()
        if self._waiting and (self._waited_for or now > self._sent + TOGETHER_S):
            self._sent, self._waited_for = now, False
            self._send()

    def _send(self) -> None:
        for _ in range(2):  # the door may have been restarted: then the new one gets it
            if not self.connect():
                break
            assert self._socket
            try:
                self._waiting = self._waiting[self._socket.send(self._waiting) :]
                return
            except BlockingIOError:
                return
            except OSError:
                self._socket.close()
                self._socket = None
        self._waiting = b""

    def connect(self) -> bool:
        """Also before there is anything to tell: of a new connection, the door would read too late
        what became of the request that it is about to answer."""
        if self._socket:
            return True
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            return False
        self._socket = made
        return True


def process_of(request_id: str) -> int:
    """Of the door's, which follows this request."""
    found = FOLLOWED.match(request_id)
    return int(found[1]) if found else 0


class Reports:
    """Of one process."""

    def __init__(self, path: str | None = None) -> None:
        self._path = os.environ.get(STEPS_VARIABLE) if path is None else path
        self.traced = bool(os.environ.get(traces.ENDPOINT))
        # To each process of the door; the first one gets all.
        self._ways: dict[int, Way] = {0: Way(self._path or "")}
        self._sending = threading.Lock()
        self._lost = 0
        self._remarks: Remarks = {}
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        # Executions to come that nobody asked for.
        self.warm_ups = 0

    @property
    def are_wanted(self) -> bool:
        return bool(self._path)

    def remark(self, kind: str, value: Any) -> None:
        """About a row of the execution that is going on; from any thread."""
        if self._path and len(noted := self._remarks.setdefault(kind, [])) < MOST_REMARKS:
            noted.append(value)

    def count(self, **rows: int) -> None:
        """Of the execution that is going on; from any thread."""
        if self._path:
            with self._counting:
                self._counts.update(rows)

    def leave_out(self, rows: Collection[int], sizes: Sequence[int]) -> None:
        """What was remarked about these rows of the execution that is going on, and about pictures
        of these sizes, which several threads decode, in any order."""
        answers, pictures = (self._remarks.pop(each, []) for each in (ANSWERS, PICTURES))
        answers = [each for row, each in enumerate(answers) if each and row not in rows]
        for size in sizes:
            if known := next((each for each in pictures if each[0] == size), None):
                pictures.remove(known)
        left = {ANSWERS: answers, PICTURES: pictures}
        self._remarks |= {kind: remarks for kind, remarks in left.items() if remarks}

    def forget(self) -> None:
        """What was told of the execution that is going on."""
        self._remarks, self._counts = {}, Counter()

    def report_execution(
        self,
        model: str,
        version: str,
        ids: Sequence[str],
        began: int,
        failed: int,
        rows: int,
        followed: Sequence[str] = (),
        network: str = "",
    ) -> None:
        remarks, counts = self._remarks, self._counts
        self.forget()
        report = {
            "model": model, "version": version, "ids": [each for each in ids if each],
            "requests": len(ids), "rows": rows, "failed": failed, "traces": followed,
            "network": network, "began": began, "ended": time.monotonic_ns(),
            **remarks, **counts,
        }  # fmt: skip
        with self._sending:
            line = json.dumps(report | {"lost": self._lost}).encode() + b"\n"
            if not self._ways[0].add(line, bool(report["ids"] or report["traces"])):
                self._lost += 1
                return
            self._lost = 0
            for number in {process_of(each) for each in ids} - {0}:
                path = sockets.of_process(self._path or "", number)
                self._ways.setdefault(number, Way(path)).add(line, is_waited_for=True)

    def send(self) -> None:
        """One that the door follows waits for it; all others may travel together."""
        with self._sending:
            for way in self._ways.values():
                way.send()

    def keep_sending(self) -> None:
        """What is left, and nothing but a connection where there is nothing yet."""
        while True:
            with self._sending:
                for way in self._ways.values():
                    way.connect()
            self.send()
            time.sleep(LATEST_S)


reports = Reports()
if reports.are_wanted:
    threading.Thread(target=reports.keep_sending, daemon=True).start()


def reported(model: type) -> type:
    """Of a TritonPythonModel: each of its executions is reported."""
    if not reports.are_wanted:
        return model
    initialize_model, execute_model = model.initialize, model.execute  # type: ignore[attr-defined]

    def initialize(self: Any, args: dict[str, str]) -> None:
        self.called = args["model_name"], args["model_version"]
        reports.warm_ups = count_warm_ups(args)
        initialize_model(self, args)

    def execute(self: Any, requests: list[Any]) -> list[Any]:
        began = time.monotonic_ns()
        responses: list[Any] = execute_model(self, requests)
        with suppress(Exception):  # whatever it is, the answers are there
            model_name, version = self.called
            pairs = zip(requests, responses, strict=True)
            done = [(request, each.has_error()) for request, each in pairs if not is_put_off(each)]
            failed = [number for number, (_, has_failed) in enumerate(done) if has_failed]
            network = getattr(self, "network", "")
            report(model_name, version, [each for each, _ in done], began, failed, network)
            end_execution()
        return responses

    model.initialize, model.execute = initialize, execute  # type: ignore[attr-defined]
    return model


def is_put_off(response: Any) -> bool:
    """It comes again, and counts then."""
    return response.has_error() and work.LATER in response.error().message()


def report(
    model: str,
    version: str,
    requests: Sequence[Any],
    began: int,
    failed: Collection[int],
    network: str,
) -> None:
    """`failed` are numbers of requests. Our own are left out, with all that is known of them."""
    theirs = [each for each in requests if each not in own_requests and not reports.warm_ups]
    if not theirs:
        reports.forget()
        return
    of_rows = [each for each in requests for _ in range(rows_of(each))]
    ours = {row: each for row, each in enumerate(of_rows) if each in own_requests}
    reports.leave_out(ours, [each.inputs()[0].shape()[-1] for each in ours.values()])
    rows = len(of_rows) - len(ours)
    ids = [each.request_id() for each in theirs]
    found = (traces.traceparent(each.parameters()) for each in theirs if reports.traced)
    followed = [each for each in found if each]
    failures = sum(requests[number] not in own_requests for number in failed)
    reports.report_execution(model, version, ids, began, failures, rows, followed, network)


class PartReports:
    """Of a model that does the work of several: each part is reported as the model whose work it
    is, in this model's version."""

    def __init__(self, args: Mapping[str, str], models: Mapping[str, str], network: str) -> None:
        self._models, self._version, self._network = models, args["model_version"], network
        reports.warm_ups = count_warm_ups(args)

    def for_requests(
        self, requests: Sequence[Any]
    ) -> Callable[[str, Sequence[int], int, Collection[int]], None]:
        """What reports a part: its name, the numbers of its requests, when it began, and which of
        them failed."""

        def part(name: str, numbers: Sequence[int], began: int, failed: Collection[int]) -> None:
            if not reports.are_wanted:
                return
            with suppress(Exception):  # whatever it is, the answers come
                there = [requests[number] for number in numbers]
                lost = [place for place, number in enumerate(numbers) if number in failed]
                report(self._models[name], self._version, there, began, lost, self._network)

        return part

    def send(self) -> None:
        """Those of an execution in one go: each piece would wake the door."""
        with suppress(Exception):
            end_execution()


def count_warm_ups(args: Mapping[str, str]) -> int:
    """The first executions of each process: each sample of its config by itself, so many times."""
    samples = json.loads(args["model_config"]).get("model_warmup", [])
    return sum(max(int(each.get("count", 0)), 1) for each in samples)


def end_execution() -> None:
    reports.warm_ups = max(reports.warm_ups - 1, 0)
    reports.send()


def rows_of(request: Any) -> int:
    shape = request.inputs()[0].shape()
    return int(shape[0]) if len(shape) else 1


def remark_picture(size: int, width: int, height: int, decoded: float, share: float) -> None:
    reports.remark(PICTURES, [size, width, height, decoded, share])


def find_silent_network(folder: Path) -> str:
    """The identity of a network that Triton computes itself, in a plan: the step after it reports
    its answers, and has its manifest. Empty on a CPU."""
    return identity(folder) if (folder / "manifest.json").is_file() else ""


def remark_scores(outputs: Mapping[str, NDArray[Any]]) -> None:
    """The likeliest class of each row, and how likely it is: to see what a version answers."""
    if not reports.are_wanted or len(outputs) != 1:
        return
    (scores,) = outputs.values()
    if not isinstance(scores, np.ndarray) or scores.ndim != 2 or scores.dtype != np.float32:
        return
    some = scores[:MOST_REMARKS]
    best = some.argmax(axis=1)
    with np.errstate(all="ignore"):
        likely = 1 / np.exp(some - some.max(axis=1, keepdims=True)).sum(axis=1)
    for number, probability in zip(best.tolist(), likely.tolist(), strict=True):
        # One a row. Of NaN, which is the next step's to refuse, there is nothing to say.
        known = probability == probability
        reports.remark(ANSWERS, [number, round(probability, 4)] if known else None)
