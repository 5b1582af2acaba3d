"""The latest answers of a model's process, for inputs that come again.

They belong to the process, which serves one version of one model: no other version can give them,
and they end with it. (Triton's own cache keeps failures too, as empty answers, and tells inputs
apart by a hash of 64 bits that anybody can match.)

A request with the parameter `cache: false` is computed, and its answer is not kept.
"""

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving import CACHE
from bundle_serving.step_reports import reports

VARIABLE = "CACHE_MB"  # of each process; none: nothing is kept

Row = Mapping[str, NDArray[Any]]  # tensors by name, without the batch's dimension
Batch = Mapping[str, NDArray[Any]]

# An answer's own, besides its tensors: the key, the mapping, and numpy's heads.
KEPT_WITH_IT = 500


def may_be_repeated(request: Any) -> bool:
    """Whether a known answer will do."""
    parameters = request.parameters()
    return not parameters or json.loads(parameters).get(CACHE) is not False


class Repeated:
    def __init__(self, megabytes: float | None = None) -> None:
        given = float(os.environ.get(VARIABLE) or 0) if megabytes is None else megabytes
        self._most = given * 1e6
        self._held = 0
        self._known: OrderedDict[bytes, Row] = OrderedDict()  # the latest last
        self._lock = threading.Lock()

    def rows(self, compute: Callable[[Batch], Batch], batch: Batch, may: Sequence[bool]) -> Batch:
        """The answers to a batch, of which only the rows that are not known are computed."""
        if not (self._most and any(may)):
            return compute(batch)
        keys = [_key(batch, row) if known else b"" for row, known in enumerate(may)]
        answers = [self._find(key) for key in keys]
        new = [row for row, answer in enumerate(answers) if answer is None]
        found = len(keys) - len(new)
        reports.count(hits=found, misses=sum(may) - found)
        if not new:
            return _together([answer for answer in answers if answer is not None])
        results = compute(batch if not found else {n: each[new] for n, each in batch.items()})
        for place, row in enumerate(new):
            # Copied: the next batch may overwrite it.
            answers[row] = {name: each[place].copy() for name, each in results.items()}
            self._keep(keys[row], answers[row])
        return results if not found else _together([each for each in answers if each is not None])

    def _find(self, key: bytes) -> Row | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _keep(self, key: bytes, answer: Row | None) -> None:
        if not key or answer is None or (size := _size(answer)) > self._most:
            return
        with self._lock:
            if key not in self._known:
                self._known[key] = answer
                self._held += size
            while self._held > self._most:
                _, oldest = self._known.popitem(last=False)
                self._held -= _size(oldest)


def _key(batch: Batch, row: int) -> bytes:
    hashed = hashlib.sha256()
    for name, tensor in batch.items():
        asked = np.ascontiguousarray(tensor[row])
        hashed.update(f"{name} {asked.dtype} {asked.shape} ".encode())
        hashed.update(asked.data)
    return hashed.digest()


def _size(answer: Row) -> int:
    return KEPT_WITH_IT + sum(each.nbytes for each in answer.values())


def _together(answers: Sequence[Row]) -> Batch:
    return {name: np.stack([each[name] for each in answers]) for name in answers[0]}
