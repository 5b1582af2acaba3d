"""Image files -> pixels, for every picture of several requests at once. No Triton here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.pictures import PictureError, Seen, Transform, check_together, to_pixels
from bundle_serving.repeated import Repeated

Pending = Sequence["Future[NDArray[np.uint8]]"]


class Decoder:
    def __init__(self, how: Transform, threads: int, seen: Seen | None = None) -> None:
        self._how, self._seen, self._repeated = how, seen, Repeated()
        # Pillow lets go of the interpreter's lock while it decodes and resizes.
        self._pool = ThreadPoolExecutor(threads)

    def begin(self, pictures: Sequence[Any], may_be_repeated: bool) -> Pending:
        """A result for each, or the one fault of all."""
        try:
            check_together(pictures, self._how)
        except PictureError as fault:
            refused: Future[NDArray[np.uint8]] = Future()
            refused.set_exception(fault)
            return [refused]
        return [self._pool.submit(self._pixels, each, may_be_repeated) for each in pictures]

    def _pixels(self, picture: NDArray[np.uint8], may_be_repeated: bool) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self._repeated.row(
            lambda: to_pixels(picture, self._how, self._seen), picture, may_be_repeated
        )
        return pixels

    def close(self) -> None:
        self._pool.shutdown()


def gather(pending: Pending) -> NDArray[np.uint8]:
    return np.stack([picture.result() for picture in pending])
