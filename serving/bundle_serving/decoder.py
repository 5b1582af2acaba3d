"""Image files -> pixels, for every picture of several requests at once. No Triton here."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.pictures import (
    PictureError,
    Seen,
    Transform,
    check_together,
    to_pixels_and_size,
)
from bundle_serving.process.cores import Later, Turns
from bundle_serving.repeated import Batch, Repeated

# Of each picture, as a batch of one.
PIXELS, SIZE = "PIXELS", "SIZE"
Pending = Sequence["Future[Batch]"]


class Decoder:
    def __init__(self, how: Transform, threads: int, seen: Seen | None = None) -> None:
        self._how, self._seen, self._repeated = how, seen, Repeated()
        self._turns = Turns()
        # Pillow lets go of the interpreter's lock while it decodes and resizes.
        self._pool = ThreadPoolExecutor(threads)

    def begin(self, pictures: Sequence[Any], may_be_repeated: bool, alone: bool = False) -> Pending:
        """Of a request: a result for each, or the one fault of all. A single picture of a request
        that is alone is not worth waking another thread for."""
        is_single = len(pictures) == 1
        try:
            share = check_together(pictures, self._how)
        except PictureError as fault:
            return [_fail_now(fault)]
        self._turns.enter(len(pictures))
        try:
            if not is_single:
                self._turns.take(share, alone)
        except Later as later:
            for _ in pictures:
                self._turns.leave()
            return [_fail_now(later)]
        submit = _compute_now if alone and is_single else self._pool.submit
        take = partial(self._turns.take, alone=alone) if is_single else None
        return [submit(self._decode, each, may_be_repeated, take) for each in pictures]

    def _decode(
        self,
        picture: NDArray[np.uint8],
        may_be_repeated: bool,
        take: Callable[[float], None] | None,
    ) -> Batch:

        def compute(_: Batch) -> Batch:
            pixels, size = to_pixels_and_size(picture, self._how, self._seen, take)
            return {PIXELS: pixels[None], SIZE: np.array([size])}

        try:
            return self._repeated.rows(compute, {"": picture[None]}, [may_be_repeated])
        finally:  # before the execution can end
            self._turns.leave()

    def close(self) -> None:
        self._pool.shutdown()


def _compute_now(compute: Callable[..., Batch], *arguments: Any) -> Future[Batch]:
    done: Future[Batch] = Future()
    try:
        done.set_result(compute(*arguments))
    except Exception as fault:
        return _fail_now(fault)
    return done


def _fail_now(fault: Exception) -> Future[Batch]:
    failed: Future[Batch] = Future()
    failed.set_exception(fault)
    return failed


def gather(pending: Pending) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = gather_with_sizes(pending)[PIXELS]
    return pixels


def gather_with_sizes(pending: Pending) -> dict[str, NDArray[Any]]:
    """Heights and widths as well."""
    found = [picture.result() for picture in pending]
    if len({each[PIXELS].shape for each in found}) > 1:
        raise PictureError(
            "the pictures of this request differ in shape, and so do their answers; send each in a "
            "request of its own"
        )
    return {name: np.concatenate([each[name] for each in found]) for name in (PIXELS, SIZE)}
