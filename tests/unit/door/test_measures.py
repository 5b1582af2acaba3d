"""What is measured, and how Prometheus reads it."""

import asyncio
import json
import math
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from bundle_door.access.keys import Keys
from bundle_door.answers import Answer
from bundle_door.given import Given
from bundle_door.http_process import HttpProcess
from bundle_door.limits import Limits
from bundle_door.paths.measured import measure_handler
from bundle_door.paths.routes import of_inference, of_keys
from bundle_door.requests import Request
from bundle_door.served import OTHER, Served
from bundle_door.triton import Triton
from bundle_door.watching.drift import MOST_KEPT
from bundle_door.watching.measures import (
    MOST_SERIES,
    MOST_VERSIONS,
    SECONDS,
    Counter,
    Histogram,
    as_openmetrics,
    quantile,
    text,
)
from bundle_door.watching.observed import GRPC, HTTP, OK, SLOT_S, SLOTS, Observed, Recent
from bundle_door.watching.steps import Report, Steps, listen, read_reports
from bundle_door.wire.http1 import Body, Incoming
from bundle_serving import own_requests, step_reports
from bundle_serving.process.exposure import Exposure
from bundle_serving.protocol import local_http
from bundle_serving.step_reports import Reports, Way

STEP = Report(model="m", version="1", requests=1, rows=2, failed=0, began=0, ended=2_000_000)


def test_both_formats_say_the_same() -> None:
    histogram = Histogram("a_seconds", "What\nit is", ("who",), (0.1, 1.0))
    counter = Counter("b_total", "Counted", ("who",))
    for value in (0.05, 0.5, 5.0):
        histogram.observe(value, 'a "name"\\')
    counter.add("x", amount=3)
    histogram.description = "What it is"
    plain_text = text([histogram, counter])
    of_prometheus = {s.name: s for f in prometheus(plain_text) for s in f.samples}
    not_ours = "# HELP c Not ours\n# TYPE c counter\nc 1\n"
    open_text = as_openmetrics(plain_text + not_ours) + "# EOF\n"
    assert "\n# TYPE c unknown\nc 1\n" in open_text
    of_openmetrics = {s.name: s for f in openmetrics(open_text) for s in f.samples}
    assert of_openmetrics.keys() == of_prometheus.keys() | {"c"}
    assert of_prometheus["a_seconds_count"].labels == {"who": 'a "name"\\'}
    assert of_openmetrics["a_seconds_sum"].value == pytest.approx(5.55)
    assert of_openmetrics["b_total"].value == 3


def test_of_series_without_end_the_last_that_changed_are_there() -> None:
    observed = Observed()
    rolled_out = [str(number) for number in range(MOST_SERIES)]
    for version in rolled_out:
        for protocol in (HTTP, GRPC):
            observed.request(("birds", version, protocol), 200, 0.5)
            observed.request(("always", "1", protocol), 200, 0.5)
        observed.report(msgspec.structs.replace(STEP, version=version, answers=[(7, 0.5)]))
    last = {*rolled_out[-MOST_VERSIONS:]}
    for family in (observed.requests, observed.steps, observed.confidence):
        assert {labels[1] for labels in family.counts if labels[0] != "always"} == last
    assert {labels[1] for labels in observed.rows.sums} == last
    (told,) = (each for each in observed.totals() if each["model"] == "birds")
    assert told["answered"] == 2 * MOST_SERIES  # of all versions
    assert sum(observed.requests.counts["always", "1", HTTP, OK]) == MOST_SERIES
    assert observed.requests.sums.keys() == observed.requests.counts.keys()
    assert {*observed.drift.versions} == {("m", each) for each in rolled_out[-MOST_KEPT:]}
    for pipeline in rolled_out:
        observed.request((pipeline, "1", HTTP), 200, 0.5)
    assert len(observed.requests.counts) == len(observed.requests.sums) == MOST_SERIES
    counter = Counter("a_total", "Counted", ("who",))
    for who in ("first", *rolled_out[1:], "first", "last"):
        counter.add(who)
    assert len(counter.values) == MOST_SERIES
    assert (counter.values["first",], counter.values["last",]) == (2, 1)


@pytest.mark.parametrize("true", [0.004, 0.0371, 0.5, 2.0])
def test_percentiles_are_near_the_true_ones(true: float) -> None:
    histogram = Histogram("a_seconds", "")
    for _ in range(100):
        histogram.observe(true)
    found = quantile(SECONDS, histogram.counts[()], 0.99)
    assert found == pytest.approx(true, rel=0.27)  # a bucket's width
    assert quantile(SECONDS, [0] * (len(SECONDS) + 1), 0.5) is None


def test_the_last_minutes() -> None:
    now = [1_000_000.0]
    recent = Recent(lambda: now[0])
    series = ("p", "1", "http")
    for _ in range(10):
        recent.slot(series).counts[10] += 1
    recent.slot(series).unanswered["refused"] += 2
    recent.slot(series).unanswered["failed"] += 1
    now[0] += 1
    (summary,) = recent.as_json()
    assert (summary["asked"], summary["failed"], summary["refused"]) == (11, 1, 2), "without a wait"
    assert summary["per_second"] == 0.18  # of 56 seconds
    now[0] += SLOT_S
    (summary,) = recent.as_json()
    assert summary["throughput"][-1] == 10 / SLOT_S
    now[0] += 60
    (summary,) = recent.as_json()
    assert summary["per_second"] == 0 and summary["p99_ms"] is None


def test_what_a_busy_server_refuses_is_not_its_failure() -> None:
    observed = Observed()
    for status in (400, 429, 503, 500, 504):
        observed.request(("p", "1", "http"), status, 0.1)
    slot = observed.recent.slot(("p", "1", "http"))
    assert slot.unanswered == {"refused": 1, "busy": 2, "failed": 2}


def test_percentiles_over_time_rest_on_enough_answers() -> None:
    now = [1_000_000.0]
    recent = Recent(lambda: now[0])
    recent.slot(("q", "1", "http")).unanswered["refused"] += 1
    recent.slot(("q", "1", "http")).unanswered["failed"] += 2
    now[0] += SLOT_S
    told = recent.over_time()
    assert {len(values) for values in told.values()} == {SLOTS - 1}
    assert (told["failed"][-1], told["p50_ms"][-1]) == (2, None)
    recent.slot(("q", "1", "grpc")).counts[10] += 20
    now[0] += SLOT_S
    told = recent.over_time()
    assert told["p50_ms"][-1] and told["p95_ms"][-1] and told["p99_ms"][-1] is None
    assert told["failed"][-2:] == [2, 0] and told["refused"][-2:] == [1, 0]
    now[0] += 60
    assert recent.over_time()["p50_ms"][-1] is None


def test_the_first_minute_that_is_shown_is_a_whole_one() -> None:
    now = [1_000_000.0]
    recent = Recent(lambda: now[0])
    for _ in range(2 * SLOTS):
        recent.slot(("p", "1", "http")).counts[10] += 2
        now[0] += SLOT_S
    recent.slot(("q", "1", "http"))
    assert None not in recent.over_time()["p95_ms"]
    now[0] += (SLOTS - 1) * SLOT_S
    assert [each["pipeline"] for each in recent.as_json()] == ["q"]


def test_a_step_tells_the_door(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_reported(tmp_path / "steps"), timeout=60))


async def _reported(socket: Path) -> None:
    observed = Observed()
    steps = Steps(observed.report)
    reports = Reports(str(socket))
    reports.report_execution("m", "1", ["nobody"], 0, 0, 1)
    reports.send()  # there is no door yet
    earlier = await asyncio.start_unix_server(lambda _, writer: writer.close(), socket)
    reports.report_execution("m", "1", ["nobody"], 0, 0, 1)
    reports.send()
    with suppress(BrokenPipeError):
        way = reports._ways[0]
        while way._socket and way._socket.send(b"\n"):
            await asyncio.sleep(0)
    earlier.close()
    server = await listen(socket, steps.take, Report)
    # From Python 3.12 on, `async with` waits for who is still connected.
    with closing(server), steps.following() as followed:
        reports.remark("answers", [7, 0.5])
        reports.report_execution("m", "1", [followed.id, ""], 0, 1, 2)
        reports.report_execution("n", "1", [followed.id, ""], 0, 0, 2)
        reports.send()
        while len(followed.reports) < 2:
            await asyncio.sleep(0)
        left = threading.Thread(target=reports.keep_sending, daemon=True)
        reports.report_execution("m", "2", [], 0, 0, 1)
        reports.send()  # it waits, since others were sent just now
        left.start()
        while ("m", "2") not in observed.steps.sums:
            await asyncio.sleep(0)
    report, other = followed.reports
    assert other.model == "n" and not other.answers
    assert (report.requests, report.rows, report.failed, report.answers) == (2, 2, 1, [(7, 0.5)])
    assert observed.confidence.sums[("m", "1")] == 0.5


def test_what_each_process_has_lost_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    observed, has_room = Observed(), iter((False, False, True, True) * 2)

    def add(_: Way, line: bytes, is_waited_for: bool) -> bool:
        if is_added := next(has_room):
            observed.report(msgspec.json.decode(line, type=Report))
        return is_added

    monkeypatch.setattr(Way, "add", add)
    for reports in Reports("somewhere"), Reports("somewhere"):
        for _ in range(4):
            reports.report_execution("m", "1", [], 0, 0, 1)
    assert observed.lost.values == {("m",): 4}


def test_the_first_report_is_read_in_time(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_reported_first(tmp_path / "steps"), timeout=60))


async def _reported_first(socket: Path) -> None:
    steps, reports = Steps(Observed().report), Reports(str(socket))
    server = await listen(socket, steps.take, Report)
    threading.Thread(target=reports.keep_sending, daemon=True).start()
    while not reports._ways[0]._socket:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # until it is taken
    with closing(server), steps.following() as followed:
        reports.report_execution("m", "1", [followed.id], 0, 0, 1)
        reports.send()
        await asyncio.sleep(0)  # Triton's answer comes in a later turn than the report
        await read_reports()
        assert followed.reports


@dataclass(frozen=True)
class Asked:
    """A request of so many rows, as a step has it."""

    id: str
    rows: int
    size: int

    def request_id(self) -> str:
        return self.id

    def inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(shape=lambda: [self.rows, self.size])]


def test_a_fault_of_the_door_counts_as_one(tmp_path: Path) -> None:
    """As its answer says: 500."""

    async def fail(*_: object) -> Answer:
        raise KeyError

    observed, served = Observed(), Served(cast(Triton, None), tmp_path)
    served._ready, served._asked = set(), math.inf
    handler = measure_handler(fail, observed, served)

    async def ask() -> None:
        request = Request("POST", "/v2/models/m/infer", {})
        await handler(request, {"model": "m", "version": ""})

    with pytest.raises(KeyError):
        asyncio.run(ask())
    assert [each["failed"] for each in observed.totals()] == [1]


@pytest.mark.parametrize(
    ("path", "length", "reason"),
    [
        ("/v2/models/m/infer", 10**12, "too_large"),
        ("/internal/authorize/classify", 0, "no_key"),
    ],
)
def test_what_is_refused_before_its_handler_is_measured(
    tmp_path: Path, path: str, length: int, reason: str
) -> None:
    observed = Observed()
    tmp_path.joinpath("keys").touch()

    async def ask() -> None:
        given = Given(tmp_path, "", {}, None, Limits(), Exposure())
        process = HttpProcess(given, observed, None)
        keys = of_keys(Keys(tmp_path / "keys", None))
        service = process.build_service([*of_inference(process.api), *keys])
        headers = {"content-length": str(length)}
        await service(Incoming("POST", path, "", headers, cast(Body, None), Mock()))
        await process.triton.close()

    asyncio.run(ask())
    assert observed.refused.values[(reason, HTTP)] == 1
    assert [each["why"] for each in observed.errors] == [reason]
    assert [series[:3] for series in observed.requests.counts] == [(OTHER, "", HTTP)]


def test_our_own_requests_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that share a batch with others: the others alone are."""
    told: list[dict[str, Any]] = []
    reports = Reports("somewhere")
    monkeypatch.setattr(step_reports, "reports", reports)
    monkeypatch.setenv(own_requests.VARIABLE, "ours")
    monkeypatch.setattr(
        reports, "report_execution", lambda *about: told.append(dict(reports._remarks))
    )
    ours, theirs = Asked("ours", 1, 67), Asked("their own", 2, 1000)
    for requests, failed, known in (([ours], [], []), ([theirs, ours, theirs], [1], [1, 2, 4, 5])):
        for row in (1, 2, 3, 4, 5):
            reports.remark("answers", [row, 0.5])
        for each in requests:
            reports.remark("pictures", [each.size, 1, 1, 1.0])
        step_reports.report("m", "1", requests, 0, failed, "")
        assert [[n for n, _ in each["answers"]] for each in told] == ([known] if known else [])
    assert [size for size, *_ in told[0]["pictures"]] == [1000, 1000]


def test_a_report_of_a_batch_counts_what_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports("somewhere")
    monkeypatch.setattr(step_reports, "reports", reports)
    monkeypatch.setenv(own_requests.VARIABLE, "ours")
    ours, theirs = Asked("ours", 1, 67), Asked("their own", 2, 1000)
    step_reports.report("m", "1", [ours, theirs, theirs], 0, [0, 2], "")
    report = msgspec.json.decode(reports._ways[0]._waiting, type=Report)
    assert (report.requests, report.rows, report.failed) == (2, 4, 1)
    assert report.ids == ["their own", "their own"]


def test_what_warms_a_process_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports("somewhere")
    monkeypatch.setattr(step_reports, "reports", reports)
    monkeypatch.setattr(reports, "send", lambda: None)  # nobody listens there
    samples = [{"name": "one", "count": 0}, {"name": "two", "count": 2}]
    config = {"model_config": json.dumps({"model_warmup": samples})}
    reports.warm_ups = step_reports.count_warm_ups(config)
    for number in range(5):
        step_reports.report("m", "1", [Asked(f"{number}", 1, 10)], 0, [], "")
        step_reports.end_execution()
    lines = reports._ways[0]._waiting.splitlines()
    told = [msgspec.json.decode(line, type=Report).ids for line in lines]
    assert told == [["3"], ["4"]]
    assert step_reports.count_warm_ups({"model_config": "{}"}) == 0


def test_the_id_of_our_own_requests_is_the_admin_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_requests.id_of("one key") == own_requests.id_of("one key")
    assert own_requests.id_of("one key") != own_requests.id_of("another")
    monkeypatch.setenv(own_requests.VARIABLE, "")
    assert Asked("", 1, 1) not in own_requests.own_requests
    monkeypatch.setenv(own_requests.VARIABLE, "ours")
    assert Asked("ours", 1, 1) in own_requests.own_requests  # as programs of 1.3 ask


def test_what_was_answered_in_all() -> None:
    observed = Observed()
    observed.request(("p", "1", "http"), 200, 0.1)
    observed.request(("p", "1", "grpc"), 500, 0.3)
    observed.report(msgspec.structs.replace(STEP, failed=1))
    step, pipeline = observed.totals()
    assert step == {"model": "m", "version": "1", "answered": 1, "failed": 1, "ms": 2.0}
    assert pipeline == {"model": "p", "version": "", "answered": 1, "failed": 1, "ms": 200.0}


def test_chunks() -> None:
    assert local_http.join_chunks(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n") == b"abc0123456789"


def test_who_ends_while_it_is_asked_gives_no_answer(tmp_path: Path) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_unix_server(end, tmp_path / "socket")
        with closing(server), pytest.raises(ConnectionResetError, match="gives no answer"):
            await local_http.ask(tmp_path / "socket", "GET", "/stats")

    asyncio.run(ask())
