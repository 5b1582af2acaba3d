"""Whether several GPUs go on to share the load: the network is asked at full speed for minutes,
with as much in flight as keeps each of them busy. No request may fail, no GPU may idle while others
compute, and it may not become slower for good.

    .venv/bin/python -m benchmark.several_gpus [--minutes 5]

Before it: make up, on a machine with several GPUs. With one there is nothing to share.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from scripts.artefacts.exporting import start
from scripts.artefacts.gpus import Gpu
from scripts.base import console
from scripts.base.errors import UserError
from scripts.measuring import perf_analyzer, photos, rounds, workload
from scripts.measuring.measurement import Measurement
from scripts.measuring.workload import Configuration
from scripts.recipes import pipelines
from scripts.rollout import rollout
from scripts.rollout.switch import Running
from scripts.stacks.gpu import GpuStack

MOST_EACH_S = 30
# For each GPU: two instances, and what waits for them.
REQUESTS, PICTURES = 8, 8
LOOK_S = 1.0
BUSY = ("nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits")

LOOK, ASK = "see make logs", " ".join(BUSY)

# A GPU that Triton forgets idles for good; two that share what comes differ by little.
STARVED = 0.5
# Of the first half's speed, at the best of the second.
STEADY = 2 / 3


def main(minutes: float = 5) -> int:
    up = rollout.find_running_server(pipelines.main())
    if not isinstance(up.stack, GpuStack):
        raise UserError("the running server uses no GPU", "make up FLAVOUR=gpu")
    if len(up.stack.gpus) == 1:
        console.note(f"one GPU serves, and shares with none: {up.stack.gpu.name}")
        return 0
    with looked_at(up.stack) as looks:
        found = ask_at_full_speed(up, up.stack.gpus, 60 * minutes)
    if found.failure:
        raise UserError(f"under load on several GPUs: {found.failure}", LOOK)
    busy, speeds = looks.busy(), [sample.throughput for sample in found.samples]
    shares = ", ".join(f"GPU {gpu} {percent:.0f}%" for gpu, percent in busy.items())
    console.note(f"no request failed; busy: {shares}")
    require_all_busy(busy)
    console.note(f"pictures a second, in turn: {', '.join(f'{speed:,.0f}' for speed in speeds)}")
    require_steady(speeds)
    console.note("every GPU computed to the end, as fast as at the beginning")
    return 0


def ask_at_full_speed(up: Running, gpus: Sequence[Gpu], seconds: float) -> Measurement:
    """In parts, of which there are two at least."""
    each = min(MOST_EACH_S, seconds / 2)
    times = round(seconds / each)
    asked = workload.find_subject(up.server, up.version.pipeline)
    pictures = photos.choose_inputs(up.version.pipeline.recipe, up.version.workspace, "")[-1]
    if asked.network and asked.transform:
        pictures = photos.pixels_of(pictures, asked.transform)
    target = asked.network or asked.pipelines[0]
    load = Configuration(target, pictures, "grpc", PICTURES, REQUESTS * len(gpus))
    with TemporaryDirectory() as folder:
        analyzer = perf_analyzer.at_hand(up.server, Path(folder))
        (found,) = rounds.measure([load], analyzer, times, times, each)
    return found


@dataclass
class Looks:
    """How busy each GPU was, in percent, at each look; by its number."""

    taken: list[dict[str, float]] = field(default_factory=list)

    def busy(self) -> dict[str, float]:
        """In the second half."""
        late = self.taken[len(self.taken) // 2 :]
        return {gpu: fmean(each[gpu] for each in late) for gpu in (late[0] if late else ())}


@contextmanager
def looked_at(stack: GpuStack) -> Iterator[Looks]:
    """Each second, as long as the block lasts."""
    looks, done = Looks(), threading.Event()
    serving = {gpu.index for gpu in stack.gpus}

    def look_on() -> None:
        while not done.wait(LOOK_S):
            if serving <= (seen := parse(stack.ask_in_server(*BUSY))).keys():
                looks.taken.append({gpu: seen[gpu] for gpu in sorted(serving)})

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        yield looks
    finally:
        done.set()
        thread.join()


def parse(rows: str) -> dict[str, float]:
    """Without a GPU that does not say how busy it is."""
    pairs = (row.split(", ") for row in rows.splitlines() if row.count(", ") == 1)
    return {index: float(busy) for index, busy in pairs if busy.isdecimal()}


def require_steady(speeds: Sequence[float]) -> None:
    """Whatever starves does so for good; what passes may have been others on the machine."""
    half = len(speeds) // 2
    first, second = fmean(speeds[:half]), max(speeds[half:])
    if second < STEADY * first:
        rates = f"{first:,.0f}, then at most {second:,.0f} pictures a second"
        raise UserError(f"several GPUs became slower: {rates}", LOOK)


def require_all_busy(busy: Mapping[str, float]) -> None:
    most = max(busy.values(), default=0)
    if not most:
        raise UserError("nvidia-smi does not say that a GPU was busy", "see what it says: " + ASK)
    for gpu, percent in busy.items():
        if percent < STARVED * most:
            cause = f"GPU {gpu} starves: it was busy for {percent:.0f}% of the time"
            raise UserError(f"{cause}, another one for {most:.0f}%", LOOK)


if __name__ == "__main__":
    start(main)
