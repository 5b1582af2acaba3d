"""What each server of a swarm must answer before it is asked by anyone: a few of the requests that
PyTorch answered, in a file beside the models. bundle_serving/proof.py asks them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from scripts.base import files
from scripts.repository.archive import Version
from scripts.steps import gate

NAME = "proof.npz"
# Docker's configs have at most 500 kB.
MOST_BYTES = 400_000


def write(version: Version, repository: Path) -> None:
    """The smallest requests, as many as go in."""
    recipe, made = version.pipeline.recipe, version.workspace
    questions, scores = recipe.golden(made), recipe.expected(made)
    sizes = [sum(tensor.nbytes for tensor in each.values()) for each in questions]
    chosen: list[int] = []
    left = MOST_BYTES
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number]):
        left -= sizes[number] + scores[number].nbytes
        if left >= 0 or not chosen:
            chosen.append(number)
    bound = gate.for_the_ensemble(gate.BOUNDS[version.precision], len(chosen))
    file = io.BytesIO()
    named = {
        f"{place}:{name}": tensor
        for place, number in enumerate(chosen)
        for name, tensor in questions[number].items()
    }
    reading = np.array(recipe.reading)
    about = {"difference": np.array(bound.difference), "top1": np.array(bound.top1)}
    np.savez_compressed(
        file, allow_pickle=False, scores=scores[chosen], reading=reading, **about, **named
    )
    files.write_bytes(repository / NAME, file.getvalue())
