"""Two networks: the second answers where the first is not confident. Pure functions, except for
the calls of the networks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.scores import softmax

# Pixels [pictures, 3, side, side] -> scores [pictures, classes].
Network = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


@dataclass(frozen=True)
class Cascade:
    first: str  # the networks' names
    then: str
    threshold: float

    def unsure(self, scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which pictures the first network is not confident about."""
        below: NDArray[np.bool_] = softmax(scores).max(axis=1) < self.threshold
        return below

    def answer(
        self, scores: NDArray[np.float32], pixels: NDArray[np.uint8], ask_then: Network
    ) -> dict[str, NDArray[Any]]:
        """The probabilities for each picture, and the name of the network that answered."""
        probabilities = softmax(scores)
        answered_by = np.full((len(scores), 1), self.first.encode(), np.object_)
        unsure = self.unsure(scores)
        if unsure.any():
            probabilities[unsure] = softmax(ask_then(pixels[unsure]))
            answered_by[unsure] = self.then.encode()
        return {"OUTPUT": probabilities, "ANSWERED_BY": answered_by}
