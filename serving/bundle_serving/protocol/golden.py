"""Requests and answers of a whole ensemble, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]


def save(path: Path, each: Sequence[Tensors], **others: NDArray[Any]) -> None:
    named = {f"{n}:{name}": tensor for n, one in enumerate(each) for name, tensor in one.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **named, **others)


def load(path: Path) -> list[Tensors]:
    found: dict[int, dict[str, NDArray[Any]]] = {}
    with np.load(path) as kept:
        for key in kept.files:
            number, _, name = key.partition(":")
            if name:
                found.setdefault(int(number), {})[name] = kept[key]
    return [found[number] for number in sorted(found)]
