"""Measures configurations in turn, several times: disturbances then affect all of them alike."""

import dataclasses
import time
from collections.abc import Sequence

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
    planned = len(warm_ups) * WARM_UP_S + rounds * len(configurations) * seconds
    planned += (len(warm_ups) + rounds * len(configurations)) * START_S
    began, done = time.monotonic(), 0.0
    for number in range(most):
        again = number >= rounds
        wanted = unsure(measure_all()) if again else range(len(configurations))
        if not wanted:
            break
        planned += len(wanted) * (seconds + START_S) if again else 0
        pace = (time.monotonic() - began) / done if done else 1.0
        minutes, rest = divmod(round((planned - done) * pace), 60)
        what = f"round {number + 1}" if again else f"round {number + 1} of {rounds}"
        with console.waiting(f"{what}, {minutes}:{rest:02} left") as waiting:
            for configuration in () if number else warm_ups:
                waiting.show(f"warming up: {configuration.name}")
                _sample(analyzer, configuration, WARM_UP_S)
                done += WARM_UP_S + START_S
            for at in wanted:
                waiting.show(configurations[at].name)
                sample = _sample(analyzer, configurations[at], seconds)
                samples[at].append(dataclasses.replace(sample, number=number))
                done += seconds + START_S
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
