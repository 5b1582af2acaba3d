"""How a network's output is to be read, judged by its numbers. Pure functions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError
from scripts.intake.ends import SLACK

GIVES = ("scores", "probabilities", "multi-label")
# Of a vector that was normalised.
LENGTH = 0.001
CHOOSE = f"say what it is: OUTPUT={'|'.join(GIVES)} (of a new version: gives, in the recipe)"


@dataclass(frozen=True)
class Reading:
    gives: str  # one of GIVES
    bounded: bool  # between 0 and 1 already
    why: str

    @property
    def answers(self) -> str:
        return "multi-label" if self.gives == "multi-label" else "single-label"


def judge_scores(
    name: str, seen: NDArray[Any], wild: NDArray[Any], is_bounded: bool, declared: str
) -> Reading:
    """From what it gives for pictures, and for other inputs. `declared` is what the user says."""
    if not np.isfinite(seen).all():
        raise UserError(
            f"{name} gives NaN or infinity for a picture", "check its weights and PICTURES="
        )
    every, one_class = np.concatenate([seen, wild]), seen.shape[1] == 1
    bounded = bool(every.min() >= -SLACK and every.max() <= 1 + SLACK)
    ends = f"from {seen.min():.3g} to {seen.max():.3g}"
    sums = every.sum(axis=1)
    if one_class and bounded and np.ptp(every) == 0:
        raise UserError(
            f"{name} has one class, and gives {seen[0, 0]:g} whatever the picture",
            "a softmax over one class says nothing; export it with a sigmoid, or without",
        )
    if declared:
        return _apply_declared(name, declared, bounded, ends)
    if bounded and not one_class and np.abs(sums - 1).max() <= SLACK:
        return Reading("probabilities", True, "each picture's numbers sum to 1")
    if bounded:
        # A sigmoid keeps to it whatever the input; scores might by chance.
        if not is_bounded:
            raise _explain_undecided(name, "between 0 and 1, though nothing in it keeps them there")
        if one_class:
            return Reading("probabilities", True, "its one number is between 0 and 1")
        return Reading("multi-label", True, "all between 0 and 1, and not summing to 1")
    if not one_class and np.abs(np.linalg.norm(every, axis=1) - 1).max() <= LENGTH:
        raise _explain_undecided(name, "of length 1 together, as a vector's")
    of_pictures = seen.sum(axis=1)
    if not one_class and seen.min() >= 0 and np.ptp(of_pictures) <= SLACK * of_pictures.max():
        raise _explain_undecided(name, f"which sum to {of_pictures.mean():.3g} for each picture")
    return Reading("scores", False, ends)


def require_exclusive(name: str, logarithms: NDArray[Any]) -> None:
    """Of an output that ends in logarithms: those of probabilities that sum to 1 are scores."""
    if np.abs(np.exp(logarithms).sum(axis=1) - 1).max() > SLACK:
        raise UserError(
            f"{name} gives no number above 0: scores, or logarithms of independent probabilities?",
            "export it without the logarithm at its end; or say OUTPUT=scores: the order of its "
            "labels is right then, and their probabilities are not",
        )


def _apply_declared(name: str, declared: str, bounded: bool, seen: str) -> Reading:
    if declared == "probabilities" and not bounded:
        raise UserError(f"{name} gives numbers {seen}, not probabilities", "OUTPUT=scores")
    return Reading(declared, bounded and declared != "scores", "as OUTPUT says")


def _explain_undecided(name: str, what: str) -> UserError:
    return UserError(f"{name} gives numbers {what}: scores or probabilities?", CHOOSE)
