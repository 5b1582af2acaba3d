"""What the door observes: every request, every execution of a step, and the last minutes
of both."""

import time
from bisect import bisect_left
from collections import Counter as Counted
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bundle_door.watching.accuracy import Accuracy, AccuracyOfClasses
from bundle_door.watching.drift import MOST_KEPT, NAMED, Drift, References
from bundle_door.watching.measures import SECONDS, Counter, Family, Gauge, Histogram, quantile
from bundle_door.watching.shadows import Compared, Shadow
from bundle_door.watching.steps import Report

# The page shows so much, in slots of so many seconds.
SLOT_S, SLOTS = 5, 180
MINUTE = 60 // SLOT_S
# And so many of the last requests that were refused or failed.
MOST_ERRORS = 30
# With so many answers at least: of fewer it is one of them.
PERCENTILES = {"p50_ms": (0.5, 1), "p95_ms": (0.95, 20), "p99_ms": (0.99, 100)}

HTTP, GRPC = "http", "grpc"
OK, REFUSED, BUSY, FAILED = "ok", "refused", "busy", "failed"
NO_ANSWER = REFUSED, BUSY, FAILED
WHY = {
    400: "bad_request", 401: "no_key", 403: "forbidden", 404: "not_found", 405: "method",
    413: "too_large", 415: "encoding", 429: "rate", 500: "internal", 503: "busy", 504: "timeout",
}  # fmt: skip

BYTES = tuple(float(1 << power) for power in range(10, 27))
MEGAPIXELS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 8.0, 12.0, 20.0, 50.0, 100.0)
DECODED = (0.125, 0.25, 0.5, 1.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
SHARES = tuple(tenth / 10 for tenth in range(1, 11))


@dataclass
class Slot:
    """A few seconds of one pipeline's requests."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    # By outcome.
    unanswered: Counted[str] = field(default_factory=Counted)
    slowest_s: float = 0.0


@dataclass
class Total:
    """Since the door's start."""

    answered: int = 0
    failed: int = 0
    times: int = 0
    seconds: float = 0.0

    def add(self, times: int, seconds: float) -> None:
        self.times += times
        self.seconds += seconds

    @property
    def ms(self) -> float:
        return 1000 * self.seconds / self.times


Series = tuple[str, str, str]  # pipeline, version, protocol


class Recent:
    """The last minutes, slot by slot."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._slots: deque[tuple[int, dict[Series, Slot]]] = deque(maxlen=SLOTS + MINUTE)

    def slot(self, series: Series) -> Slot:
        now = int(self._clock()) // SLOT_S
        if not self._slots or self._slots[-1][0] != now:
            self._slots.append((now, {}))
        return self._slots[-1][1].setdefault(series, Slot())

    def as_json(self) -> list[dict[str, Any]]:
        """Per series: what the last minute was like, and throughput over time."""
        now, begun_s = divmod(self._clock(), SLOT_S)
        known = {number: slots for number, slots in self._slots if number > now - SLOTS}
        series = sorted({each for slots in known.values() for each in slots})
        numbers = range(int(now) - SLOTS + 1, int(now) + 1)
        return [
            _summary(each, [known.get(n, {}).get(each) for n in numbers], begun_s)
            for each in series
        ]

    def find_slowest_s(self) -> float:
        """Of the answers."""
        since = int(self._clock()) // SLOT_S - SLOTS
        recent = (slots.values() for number, slots in self._slots if number > since)
        return max((slot.slowest_s for slots in recent for slot in slots), default=0.0)

    def over_time(self) -> dict[str, list[Any]]:
        """Of all series together, slot by slot: what had no answer, and the percentiles of the
        minute that ends there; None where that has too few answers."""
        now = int(self._clock()) // SLOT_S
        known = {number: slots.values() for number, slots in self._slots}
        numbers = range(now - SLOTS - MINUTE + 1, now)
        slots = [_add_up(known.get(number, ())) for number in numbers]
        found: dict[str, list[Any]] = {name: [] for name in (*NO_ANSWER, *PERCENTILES)}
        minute = [0] * (len(SECONDS) + 1)
        for at, (counts, unanswered) in enumerate(slots):
            minute = [a + b for a, b in zip(minute, counts, strict=True)]
            if at < MINUTE:
                continue
            gone, _ = slots[at - MINUTE]
            minute = [a - b for a, b in zip(minute, gone, strict=True)]
            for name, value in (unanswered | find_percentiles(minute)).items():
                found[name].append(value)
        return found


def _add_up(slots: Iterable[Slot]) -> tuple[list[int], dict[str, Any]]:
    """Their answers, and what had none."""
    each = [Slot(), *slots]
    counts = list(map(sum, zip(*(slot.counts for slot in each), strict=True)))
    return counts, {what: sum(slot.unanswered[what] for slot in each) for what in NO_ANSWER}


def find_percentiles(counts: Sequence[int]) -> dict[str, float | None]:
    """None where there are too few answers."""
    answered = sum(counts)
    return {
        name: milliseconds(quantile(SECONDS, counts, share)) if answered >= least else None
        for name, (share, least) in PERCENTILES.items()
    }


def _summary(series: Series, slots: list[Slot | None], begun_s: float) -> dict[str, Any]:
    """With the slot that is still being filled, since so long: who looks has no time to wait."""
    last = [slot for slot in slots[-MINUTE:] if slot]
    counts, unanswered = _add_up(last)
    answered = sum(counts)
    return {
        "pipeline": series[0], "version": series[1], "protocol": series[2],
        "per_second": round(answered / ((MINUTE - 1) * SLOT_S + begun_s), 2),
        "answered": answered, "asked": answered + unanswered[FAILED], **unanswered,
        **find_percentiles(counts),
        "throughput": [sum(slot.counts) / SLOT_S if slot else 0 for slot in slots[:-1]],
    }  # fmt: skip


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


class Observed:
    def __init__(self, references: References | None = None) -> None:
        request = ("pipeline", "version", "protocol", "outcome")
        step = ("model", "version")
        self.requests = Histogram(
            "bundle_request_duration_seconds",
            "From a request's headers to its answer, as the door sees it",
            request,
        )
        self.refused = Counter(
            "bundle_refused_total", "Requests that were not answered", ("reason", "protocol")
        )
        for reason in WHY.values():  # Prometheus sees no first increment of what was not there
            for protocol in (HTTP, GRPC):
                self.refused.add(reason, protocol, amount=0)
        self.steps = Histogram(
            "bundle_step_duration_seconds", "One execution of a step, of a whole batch", step
        )
        self.rows = Histogram("bundle_step_batch_size", "Rows of an execution", step, ROWS)
        self.failed = Counter(
            "bundle_step_failed_total", "Requests that a step answered with an error", step
        )
        self.lost = Gauge(
            "bundle_step_reports_lost", "Reports that a step's process left out", ("model",)
        )
        self.hits = Counter(
            "bundle_cache_hits_total", "Rows that a step answered from its cache", step
        )
        self.misses = Counter(
            "bundle_cache_misses_total", "Rows that were not in a step's cache", step
        )
        self.picture_bytes = Histogram(
            "bundle_picture_size_bytes", "Size of the files of pictures", (), BYTES
        )
        self.megapixels = Histogram(
            "bundle_picture_megapixels", "Size of pictures before they are decoded", (), MEGAPIXELS
        )
        self.decoded = Histogram(
            "bundle_picture_decoded_ratio",
            "Share of a picture's width at which it was decoded",
            (),
            DECODED,
        )
        self.confidence = Histogram(
            "bundle_answer_confidence_ratio",
            "Probability of the likeliest class, by the network's version",
            step,
            SHARES,
        )
        self.classes = Counter(
            "bundle_answer_class_total",
            "Answers by their likeliest class",
            (*step, "class"),
            MOST_KEPT * (NAMED + 1),
        )
        self.copies = Counter(
            "bundle_shadow_copies_total",
            "Copies of requests that a candidate was to answer, beside the live version",
            ("pipeline", "version", "outcome"),
        )
        self.captures = Counter(
            "bundle_captures_total", "Requests that were to be kept (KEEP)", ("outcome",)
        )
        self.shadows: dict[tuple[str, str], Shadow] = {}
        self.drift = Drift(self.classes, SHARES, references)
        folder = references.repository if references else None
        self.accuracy = Accuracy(folder, self.drift.list_sure)
        self.accuracy_of_classes = AccuracyOfClasses(self.accuracy)
        self.recent = Recent()
        # By pipeline, of all versions.
        self.answered: dict[str, Total] = {}
        self.began = time.time()
        self.errors: deque[dict[str, Any]] = deque(maxlen=MOST_ERRORS)
        self.on_report: list[Callable[[Report], None]] = []

    def request(self, series: Series, status: int, seconds: float) -> None:
        outcome = outcome_of(status)
        self.requests.observe(seconds, *series, outcome)
        total = self.answered.setdefault(series[0], Total())
        total.add(1, seconds)
        total.answered += outcome == OK
        total.failed += outcome != OK
        slot = self.recent.slot(series)
        if outcome == OK:
            slot.counts[bisect_left(SECONDS, seconds)] += 1
            slot.slowest_s = max(slot.slowest_s, seconds)
        else:
            slot.unanswered[outcome] += 1
            why = WHY.get(status, "other")
            self.errors.append(
                {"at": time.time(), "pipeline": series[0], "status": status, "why": why}
            )

    def refusal(self, status: int, protocol: str) -> None:
        self.refused.add(WHY.get(status, "other"), protocol)

    def note_comparison(self, compared: Compared) -> None:
        candidate = compared.model, compared.version
        self.copies.add(*candidate, compared.outcome)
        self.shadows.setdefault(candidate, Shadow()).add(compared)

    def note_capture(self, outcome: str) -> None:
        self.captures.add(outcome)

    def tell_drift(self) -> list[dict[str, Any]]:
        """With how often each version is right now, as far as that is known."""
        return [
            each | self._tell_accuracy((each["model"], each["version"]))
            for each in self.drift.as_json()
        ]

    def _tell_accuracy(self, step: tuple[str, str]) -> dict[str, Any]:
        classes = self.accuracy.find_classes(step)
        name = self.drift.namer(step[0]) if classes else str
        told = [{"class": name(number)} | each for number, each in classes.items()]
        return {"accuracy": self.accuracy.find(step), "classes": told}

    def report(self, report: Report) -> None:
        step = (report.model, report.version)
        self.steps.observe((report.ended - report.began) / 1e9, *step)
        self.rows.observe(report.rows, *step)
        if report.failed:
            self.failed.add(*step, amount=report.failed)
        if report.lost:
            self.lost.add(report.model, amount=report.lost)
        if report.hits or report.misses:
            self.hits.add(*step, amount=report.hits)
            self.misses.add(*step, amount=report.misses)
        for size, width, height, decoded, _ in report.pictures:
            self.picture_bytes.observe(size)
            self.megapixels.observe(width * height / 1e6)
            self.decoded.observe(decoded)
        for number, probability in report.answers:
            self.confidence.observe(probability, *step)
            self.drift.observe(number, probability, step, report.network)
        for listener in self.on_report:
            listener(report)

    def totals(self) -> list[dict[str, Any]]:
        """What each pipeline and each step has answered: of a step, rows; and how long it took, of
        a step for a batch."""
        found = {(pipeline, ""): total for pipeline, total in self.answered.items()}
        for step, counts in self.steps.counts.items():
            total = found.setdefault((step[0], step[1]), Total())
            total.add(sum(counts), self.steps.sums[step])
            total.failed += int(self.failed.values.get(step, 0))
            total.answered += int(self.rows.sums[step]) - total.failed
        return [
            {"model": model, "version": version, "answered": each.answered, "failed": each.failed,
             "ms": each.ms}
            for (model, version), each in sorted(found.items())
        ]  # fmt: skip

    @property
    def families(self) -> list[Family]:
        return [each for each in vars(self).values() if isinstance(each, Family)]


def outcome_of(status: int) -> str:
    if status < 400:
        return OK
    if status in (429, 503):
        return BUSY
    return REFUSED if status < 500 else FAILED
