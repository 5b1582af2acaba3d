"""A picture's whole way in one process, by the functions of the three steps. No Triton here."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bundle_serving.decoder import Decoder, gather
from bundle_serving.process.cores import Later
from bundle_serving.process.faults import forget_frames
from bundle_serving.scores import Reading

# Of one request: its rows, or why it has none.
Outcome: TypeAlias = NDArray[Any] | Exception
# Of each request, or of each row: whether a known answer will do.
May: TypeAlias = Sequence[bool]
# A network: pixels -> scores, of one batch.
Network: TypeAlias = Callable[[NDArray[Any], May], NDArray[Any]]
# Which part is done, for which requests, when it began (of the monotonic clock, in ns), and
# which of them failed.
Report: TypeAlias = Callable[[str, Sequence[int], int, Collection[int]], None]

DECODE, COMPUTE, READ = "decode", "compute", "read"


class OneStep:
    """Requests in, an outcome for each: what is wrong with one harms no other."""

    def __init__(self, decoder: Decoder, network: Network, read: Reading) -> None:
        self._decoder, self._network, self._read = decoder, network, read

    def of_files(self, requests: Sequence[Any], may: May, report: Report) -> list[Outcome]:
        """The probabilities of image files."""
        found = _part(DECODE, requests, partial(self._decode, may), report)
        found = _part(COMPUTE, found, partial(self._compute, may), report)
        return _part(READ, found, self._probabilities, report)

    def of_pixels(self, requests: Sequence[Any], may: May, report: Report) -> list[Outcome]:
        """The scores of pixels."""
        return _part(COMPUTE, requests, partial(self._compute, may), report)

    def close(self) -> None:
        self._decoder.close()

    def _decode(self, may: May, some: Mapping[int, Any]) -> list[Outcome]:
        alone = len(some) == 1
        pending = [self._decoder.begin(each, may[number], alone) for number, each in some.items()]
        return [_try(gather, each) for each in pending]

    def _compute(self, may: May, some: Mapping[int, Any]) -> list[Outcome]:
        """As one batch."""
        requests = list(some.values())
        of_rows = [may[number] for number, each in some.items() for _ in each]
        pixels = requests[0] if len(requests) == 1 else np.concatenate(requests)
        scores = _try(lambda batch: self._network(batch, of_rows), pixels)
        if isinstance(scores, Exception):
            return [scores] * len(requests)
        return list(np.split(scores, np.cumsum([len(each) for each in requests])[:-1]))

    def _probabilities(self, some: Mapping[int, Any]) -> list[Outcome]:
        return [_try(self._read, each) for each in some.values()]


def _part(
    name: str,
    found: Sequence[Any],
    compute: Callable[[Mapping[int, Any]], list[Outcome]],
    report: Report,
) -> list[Outcome]:
    """One part of the way, for the requests that got so far."""
    began = time.monotonic_ns()
    left = {n: each for n, each in enumerate(found) if not isinstance(each, Exception)}
    if not left:
        return list(found)
    results = dict(zip(left, compute(left), strict=True))
    done = {n: each for n, each in results.items() if not isinstance(each, Later)}
    report(name, list(done), began, [n for n, each in done.items() if isinstance(each, Exception)])
    return [results.get(number, each) for number, each in enumerate(found)]


def _try(compute: Callable[[Any], NDArray[Any]], given: Any) -> Outcome:
    try:
        return compute(given)
    except Exception as fault:
        return forget_frames(fault)
