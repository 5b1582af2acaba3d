"""Measures configurations in turn, several times: disturbances then affect all of them alike."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from scripts.base import console
from scripts.measuring import server_side
from scripts.measuring.measurement import Measurement, Sample, compare_with
from scripts.measuring.perf_analyzer import Failed, PerfAnalyzer
from scripts.measuring.workload import Configuration

# Seconds per run, besides the measurement itself.
START_S = 0.5
WARM_UP_S = 1.0


def measure(
    configurations: Sequence[Configuration],
    analyzer: PerfAnalyzer,
    rounds: int,
    most: int,
    seconds: float,
) -> list[Measurement]:
    """Measures each configuration `rounds` times for `seconds`, after a warm-up; what is then
    uncertain, up to `most` times."""
    samples: list[list[Sample]] = [[] for _ in configurations]

    def measure_all() -> list[Measurement]:
        pairs = zip(configurations, samples, strict=True)
        return [Measurement(configuration, tuple(taken)) for configuration, taken in pairs]

    warm_ups = _hardest_of_each(configurations)
    work = len(warm_ups) * WARM_UP_S + rounds * len(configurations) * seconds
    runs = len(warm_ups) + rounds * len(configurations)
    with _progress(work + runs * START_S) as progress:
        for configuration in warm_ups:
            progress.show(f"warming up: {configuration.name}")
            _sample(analyzer, configuration, WARM_UP_S)
            progress.advance(WARM_UP_S + START_S)
        for number in range(most):
            again = number >= rounds
            wanted = unsure(measure_all()) if again else range(len(configurations))
            if again:
                progress.expect(len(wanted) * (seconds + START_S))
            what = f"round {number + 1}" if again else f"round {number + 1} of {rounds}"
            if wanted:
                progress.say(what)
            for at in wanted:
                progress.show(f"{what}: {configurations[at].name}")
                sample = _sample(analyzer, configurations[at], seconds)
                samples[at].append(dataclasses.replace(sample, number=number))
                progress.advance(seconds + START_S)
    return measure_all()


def unsure(found: Sequence[Measurement]) -> list[int]:
    """Those to measure once more, with what they are compared with, by their places."""
    shaky = [one for one in found if not one.stable and not one.failure]
    return [
        at
        for at, one in enumerate(found)
        if any(
            one is each or compare_with(each, [one]) or compare_with(one, [each]) for each in shaky
        )
    ]


def seconds_each(budget: float, configurations: Sequence[Configuration], rounds: int) -> float:
    """How long to measure each, so that all fit into the budget."""
    free = budget - len(_hardest_of_each(configurations)) * (WARM_UP_S + START_S)
    return max(1.0, free / (rounds * len(configurations)) - START_S)


def _hardest_of_each(configurations: Sequence[Configuration]) -> list[Configuration]:
    """The highest concurrency of each target and kind of input."""
    hardest = {
        (one.target.label, one.inputs.name): one
        for one in sorted(configurations, key=lambda one: one.concurrency)
    }
    return list(hardest.values())


def _sample(analyzer: PerfAnalyzer, configuration: Configuration, seconds: float) -> Sample:
    target = configuration.target
    servers = target.servers or {"": target.http}
    before, told = server_side.fetch_counters(servers), server_side.fetch_metrics(target.metrics)
    try:
        seen = analyzer.run(configuration, seconds)
    except Failed as fault:
        return Sample(failure=str(fault))
    after, now = server_side.fetch_counters(servers), server_side.fetch_metrics(target.metrics)
    spent = server_side.parse_processes(told), server_side.parse_processes(now)
    worked = server_side.parse_steps(told), server_side.parse_steps(now)
    by_server = {name: server_side.subtract_counters(before[name], after[name]) for name in servers}
    counted = server_side.add_counters(by_server.values())
    pictures, failed = counted[target.model]["pictures"], counted[target.model]["failed"]
    return dataclasses.replace(
        seen,
        counted={name: counted[name] for name in {target.model, *target.steps}},
        answered={n: each[target.model]["requests"] for n, each in by_server.items() if n},
        cpu_ms=server_side.per_picture(*spent, pictures),
        parts_s={
            name: worked[1].get(name, 0.0) - worked[0].get(name, 0.0) for name in target.parts
        },
        failure=f"{failed} requests failed" if failed else "",
    )


class _Shown:
    """An animated line in a terminal; elsewhere a line per round."""

    def __init__(self, progress: Progress, task: TaskID, total: float) -> None:
        self._progress, self._task, self._total = progress, task, total
        self._began = time.monotonic()
        self._done = 0.0

    def show(self, what: str) -> None:
        self._progress.update(self._task, description=what, left=self._describe_rest())

    def say(self, what: str) -> None:
        if not console.out.is_terminal:
            console.note(f"{what}, {self._describe_rest()}")

    def expect(self, more: float) -> None:
        self._total += more
        self._progress.update(self._task, total=self._total)

    def advance(self, planned: float) -> None:
        self._done += planned
        self._progress.advance(self._task, planned)

    def _describe_rest(self) -> str:
        pace = (time.monotonic() - self._began) / self._done if self._done else 1.0
        minutes, seconds = divmod(round((self._total - self._done) * pace), 60)
        return f"{minutes}:{seconds:02} left"


@contextmanager
def _progress(total: float) -> Iterator[_Shown]:
    columns = (
        BarColumn(20),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=console.out, transient=True, disable=not console.out.is_terminal
    ) as bar:
        yield _Shown(bar, bar.add_task("", total=total, left=""), total)
