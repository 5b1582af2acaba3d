"""Counters, gauges and histograms, in the text that Prometheus reads, or in OpenMetrics."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

# Twenty to a decade, from 1 ms to a minute: a percentile read from them is mostly within 6% of the
# true one.
SECONDS = tuple(float(f"{10 ** (step / 20):.3g}") for step in range(-60, 37))

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[str, ...]
# So many series have changed last; one that comes back begins at 0, as after a restart.
MOST_SERIES = 500
# And so many versions of one pipeline or model: else each rollout would make the text longer, by
# hundreds of lines, which is written while nothing else is answered.
MOST_VERSIONS = 5


class Family:
    """One metric, with a series for each combination of label values."""

    kind = ""

    def __init__(self, name: str, description: str, labels: Sequence[str] = ()) -> None:
        self.name, self.description, self.labels = name, description, tuple(labels)

    def find_surplus(self, known: Iterable[Labels], new: Labels, most: int) -> set[Labels]:
        """What goes for a series that comes: of those known, which changed last is the last."""
        known = list(known)
        surplus = {*known[: max(0, len(known) + 1 - most)]}
        if self.labels[1:2] == ("version",):
            own = [each for each in known if each[0] == new[0]]
            versions = dict.fromkeys([new[1], *(each[1] for each in reversed(own))])
            kept = [*versions][:MOST_VERSIONS]
            surplus.update(each for each in own if each[1] not in kept)
        return surplus

    def samples(self) -> Iterator[str]:
        raise NotImplementedError


class Counter(Family):
    kind = "counter"

    def __init__(
        self, name: str, description: str, labels: Sequence[str] = (), most: int = MOST_SERIES
    ) -> None:
        super().__init__(name, description, labels)
        self.most = most
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        if labels not in self.values:
            for each in self.find_surplus(self.values, labels, self.most):
                del self.values[each]
        self.values[labels] = self.values.pop(labels, 0) + amount

    def samples(self) -> Iterator[str]:
        for labels, value in sorted(self.values.items()):
            yield sample(self.name, self.labels, labels, value)


class Gauge(Counter):
    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value


class Histogram(Family):
    kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = SECONDS,
    ) -> None:
        super().__init__(name, description, labels)
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        if labels not in self.counts:
            for each in self.find_surplus(self.counts, labels, MOST_SERIES):
                del self.counts[each], self.sums[each]
        counts = self.counts.pop(labels, None) or [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += 1
        self.counts[labels] = counts
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def samples(self) -> Iterator[str]:
        for labels, counts in sorted(self.counts.items()):
            so_far = 0
            for bound, count in zip((*self.bounds, None), counts, strict=True):
                so_far += count
                le = "+Inf" if bound is None else number(bound)
                yield sample(f"{self.name}_bucket", (*self.labels, "le"), (*labels, le), so_far)
            yield sample(f"{self.name}_sum", self.labels, labels, self.sums[labels])
            yield sample(f"{self.name}_count", self.labels, labels, so_far)


def sample(name: str, names: Sequence[str], values: Sequence[str], value: float) -> str:
    pairs = ",".join(f'{n}="{escape_value(v)}"' for n, v in zip(names, values, strict=True))
    return f"{name}{{{pairs}}} {number(value)}" if pairs else f"{name} {number(value)}"


def escape_value(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """Buckets must be called the same in both formats: 1.0, not 1."""
    return repr(float(value)) if isinstance(value, float) else str(value)


def text(families: Sequence[Family]) -> str:
    lines: list[str] = []
    for each in families:
        if samples := list(each.samples()):
            lines += f"# HELP {each.name} {each.description}", f"# TYPE {each.name} {each.kind}"
            lines += samples
    return "".join(f"{line}\n" for line in lines)


def as_openmetrics(prometheus: str) -> str:
    """OpenMetrics names a counter without the ending of its samples, which keep their names: what
    it takes for no counter, because its name has another ending, is of unknown type there."""
    return "".join(f"{line}\n" for line in map(_as_openmetrics, prometheus.splitlines()) if line)


def _as_openmetrics(line: str) -> str:
    if not line.startswith("# "):
        return line
    _, what, name, value = line.split(" ", 3)
    if what == "TYPE" and value == "counter" and not name.endswith("_total"):
        value = "unknown"
    return f"# {what} {name.removesuffix('_total')} {value}"


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """As Prometheus' histogram_quantile; None without observations."""
    total = sum(counts)
    if not total:
        return None
    wanted, so_far = share * total, 0
    for place, count in enumerate(counts):
        if count and so_far + count >= wanted:
            if place == len(bounds):
                return bounds[-1]
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * (wanted - so_far) / count
        so_far += count
    return bounds[-1]
