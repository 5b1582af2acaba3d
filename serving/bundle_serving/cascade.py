"""Two networks, of which the second answers what the first is not sure of. Pure functions, and how
one model asks another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.scores import softmax

# Pixels [pictures, 3, side, side] -> scores [pictures, classes].
Network = Callable[[NDArray[np.uint8]], Awaitable[NDArray[np.float32]]]


@dataclass(frozen=True)
class Named:
    name: str
    network: Network


async def classify(
    pixels: NDArray[np.uint8], first: Named, then: Named, threshold: float
) -> dict[str, NDArray[Any]]:
    """The probabilities of each picture, and the name of the network that gave them."""
    probabilities = softmax(await first.network(pixels))
    answered_by = np.full((len(pixels), 1), first.name.encode(), np.object_)
    unsure = np.flatnonzero(probabilities.max(axis=1) < threshold)
    if len(unsure):
        probabilities[unsure] = softmax(await then.network(np.ascontiguousarray(pixels[unsure])))
        answered_by[unsure] = then.name.encode()
    return {"OUTPUT": probabilities, "ANSWERED_BY": answered_by}
