"""Whether two runs of a network that says what each pixel shows agree. Pure functions."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Agreement
from bundle_serving.infer import Answer

SEGMENTATION = "segmentation"  # of one that answers with the number of a class for each pixel
ANSWERS = {"MASK"}


class OfMasks(Agreement):
    """Its difference is the share of a picture's pixels that are of another class."""

    def __str__(self) -> str:
        return (
            f"{SAME_PIXELS:.0%} of the pixels equal on {self.top1_equal} of {self.pictures} "
            f"pictures, at most {self.max_difference:.2%} of them another class"
        )


# So many of a picture's pixels are of the same class again.
SAME_PIXELS = 0.99


def of_masks(reference: Iterable[NDArray[Any]], masks: Iterable[NDArray[Any]]) -> OfMasks:
    """Compares the classes of pixels with the reference's, picture by picture."""
    others = [
        float(np.mean(expected != mask)) if expected.shape == mask.shape else 1.0
        for expected, mask in zip(reference, masks, strict=True)
    ]
    equal = sum(share <= 1 - SAME_PIXELS for share in others)
    return OfMasks(len(others), equal, max(others))


def compare_answers(reference: Sequence[Answer], answers: Sequence[Answer]) -> OfMasks:
    return of_masks(*([each["MASK"] for each in side] for side in (reference, answers)))


SCORES = {SEGMENTATION: of_masks}
