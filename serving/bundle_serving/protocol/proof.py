"""Before a server is asked by anyone: does it answer as it should, on this machine too?

scripts/rollout/proofs.py writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bundle_serving import agreement, infer
from bundle_serving.address import Address
from bundle_serving.agreement import Bound
from bundle_serving.infer import Answer, Question
from bundle_serving.protocol import golden


def save(
    path: Path, questions: Sequence[Question], answers: Sequence[Answer], bound: Bound
) -> None:
    about = {"difference": np.array(bound.difference), "top1": np.array(bound.top1)}
    golden.save(path, [*questions, *answers], **about)


def refusal(at: Address, model: str, file: Path) -> str | None:
    """None if its answers are within the bound."""
    kept = golden.load(file)
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
