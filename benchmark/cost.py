"""What processor time a request takes of each process of a server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import psutil

from benchmark.load import Question, Round, measure

Named = Callable[[psutil.Process], str]


def measure_cost(
    question: Question,
    concurrency: int,
    seconds: float,
    find: Callable[[], Iterable[psutil.Process]],
    name: Named = psutil.Process.name,
) -> tuple[Round, dict[str, float]]:
    """And milliseconds of the processor a request, by the processes' names."""
    before = sum_cpu_ms(find(), name)
    took = measure(question, concurrency, seconds)
    after = sum_cpu_ms(find(), name)
    return took, {each: (ms - before.get(each, 0)) / took.answered for each, ms in after.items()}


def sum_cpu_ms(processes: Iterable[psutil.Process], name: Named) -> dict[str, float]:
    """So far."""
    spent: dict[str, float] = defaultdict(float)
    for process in processes:
        times = process.cpu_times()
        spent[name(process)] += 1e3 * (times.user + times.system)
    return spent


def processes_of(http: str) -> list[psutil.Process]:
    """Of the server with this port."""
    port = http.rpartition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "bundle_keeper" in command and port in command:
            return [process, *process.children(recursive=True)]
    raise SystemExit(f"the server on port {port} is gone")
