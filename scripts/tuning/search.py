"""Which settings to try, in which order. Pure: the comparison is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scripts.recipes.layout import Share

# Of the network on a GPU: each holds the memory that a batch takes.
MOST_COPIES = 4


@dataclass(frozen=True)
class Candidate:
    precision: str
    network: Share
    preprocessing: Share

    def __str__(self) -> str:
        return (
            f"{self.precision}, network {_words(self.network)}, "
            f"preprocessing {_words(self.preprocessing)}"
        )

    @property
    def settings(self) -> dict[str, str]:
        return {
            "PRECISION": self.precision,
            "NETWORK_INSTANCES": str(self.network.instances),
            "NETWORK_THREADS": str(self.network.threads),
            "PREPROCESS_INSTANCES": str(self.preprocessing.instances),
            "PREPROCESS_THREADS": str(self.preprocessing.threads),
        }


@dataclass(frozen=True)
class OnGpu(Candidate):
    """All are of one plan, whose precision is no setting; the network is copied, and has no threads
    of its own."""

    def __str__(self) -> str:
        return (
            f"{self.precision}, copies of the network per GPU: {self.network.instances}, "
            f"preprocessing {_words(self.preprocessing)}"
        )

    @property
    def settings(self) -> dict[str, str]:
        found = super().settings
        return {name: found[name] for name in found if name not in ("PRECISION", "NETWORK_THREADS")}


def _words(share: Share) -> str:
    return f"{share.instances} x {share.threads}"


# What is varied, one at a time, the most influential first: a field and its values.
Axes = Mapping[str, Sequence[Any]]


def axes(cores: int, precisions: Sequence[str], one_step: bool = False) -> Axes:
    """In one step, the network's processes decode."""
    found: Axes = {"precision": precisions, "network": list(shares(cores))}
    return found if one_step else {**found, "preprocessing": list(shares(cores))}


def axes_on_gpu(cores: int, is_copied: bool, decodes: bool) -> Axes:
    """Whether settings say how often the network is there, and whether processes decode."""
    copies = [Share(number, 1) for number in range(1, MOST_COPIES + 1)]
    found: Axes = {"network": copies} if is_copied else {}
    return {**found, "preprocessing": list(shares(cores))} if decodes else found


def shares(cores: int) -> Iterator[Share]:
    """From one process with all threads to one process per core; each also with twice the threads,
    since an idle process leaves its core to others."""
    instances = 1
    while instances <= cores:
        threads = max(1, cores // instances)
        yield Share(instances, threads)
        if instances > 1:
            yield Share(instances, min(cores, 2 * threads))
        instances *= 2


def descend(
    start: Candidate,
    axes: Axes,
    beats: Callable[[Candidate, Candidate], bool],
    time_is_left: Callable[[], bool],
) -> Candidate:
    """Descends along one axis after the other until none improves. `beats` compares a challenger
    with the best so far; nothing is a challenger twice."""
    best, known = start, {start}
    improved = True
    while improved:
        improved = False
        for axis, values in axes.items():
            for value in values:
                challenger = replace(best, **{axis: value})
                if challenger in known:
                    continue
                if not time_is_left():
                    return best
                known.add(challenger)
                if beats(challenger, best):
                    best, improved = challenger, True
    return best
