"""Requests and answers of a whole ensemble, in one file; and such files as proofs, which say what a
server must answer. scripts/rollout/proofs.py writes those."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving import agreement, infer
from bundle_serving.address import Address
from bundle_serving.agreement import Bound
from bundle_serving.infer import Answer, Question

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


def save_proof(
    path: Path, questions: Sequence[Question], answers: Sequence[Answer], bound: Bound
) -> None:
    about = {"difference": np.array(bound.difference), "top1": np.array(bound.top1)}
    save(path, [*questions, *answers], **about)


def refute(at: Address, model: str, file: Path) -> str | None:
    """Before a server is asked by anyone: None if its answers, on this machine too, are within the
    bound."""
    kept = load(file)
    questions, expected = kept[: len(kept) // 2], kept[len(kept) // 2 :]
    with np.load(file) as about:
        bound = Bound(float(about["difference"]), float(about["top1"]))
    connection = at.connection(timeout=60)
    try:
        answers = [infer.ask(connection, model, each, at.uncounted_headers) for each in questions]
    finally:
        connection.close()
    seen = agreement.of_answers(expected, answers)
    if seen.within(bound):
        return None
    return f"{model} answers otherwise than where it was proved ({seen}; {bound})"
