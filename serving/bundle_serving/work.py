"""How much work one request may be, of each kind. The steps hold to it, because requests over gRPC
come to no other place; each costs a core about two seconds at most, and its network less.

How many pictures, texts, sounds or rows a request may have at all, its model's max_batch_size says:
of frames of a video one, and of a user's function what it was bound with.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

# In pictures of the largest size (MAX_MEGAPIXELS), of a form as well: as libjpeg decodes them at a
# reduced size. A progressive JPEG takes so many times as long, and what has to be decoded whole.
PICTURES = 8
PROGRESSIVE = 2
DECODED_WHOLE = 6
# Said of a picture that waits for its turn (cores.py). The door and Envoy know it by these words.
LATER = "other large pictures are being decoded; try again in a second"
# What Triton says of a model for which too many requests wait already.
QUEUE_FULL = "maximum queue size"

# Of all texts together. Each counts with as many tokens as the longest, to which it is padded.
CHARACTERS = 400_000
TOKENS = 4096

# In sounds of the longest kind. Each counts as the longest, to which it is padded.
SOUNDS = 10

# Of all arrays of pixels together.
MEGAPIXELS = 50

# Of rows of a network on a CPU, whatever they are: always so many, and more, in steps, if they take
# it no longer than this, in seconds of processor time. A request cannot be put aside for another's,
# so where every process computes, the next one waits as long.
ROWS, STEP = 32, 16
NETWORK_S = 0.75


class Rows:
    """How many rows a request may have, by what a row has cost this process's network at least."""

    def __init__(self) -> None:
        self._seconds_each = math.inf

    @contextmanager
    def computing(self, rows: int) -> Iterator[None]:
        began = time.process_time()
        yield
        took = time.process_time() - began
        self._seconds_each = min(self._seconds_each, took / max(rows, 1))

    @property
    def most(self) -> float:
        """Without a bound before any is known: each model answers an example when it is loaded."""
        if not 0 < self._seconds_each < math.inf:
            return math.inf
        return max(ROWS, NETWORK_S / self._seconds_each // STEP * STEP)

    def too_many(self, rows: int) -> str | None:
        """None if a request may have so many."""
        if rows <= self.most:
            return None
        return (
            f"the request has {rows} rows, and the limit of this network is {self.most:.0f} on "
            f"this server: {NETWORK_S:g} s of a processor; send fewer at once"
        )


def too_many_numbers(rows: int, numbers: int, most: int) -> str | None:
    """None if the rows may have so many: no more than the step before makes of the largest."""
    if numbers <= rows * most:
        return None
    return (
        f"each row of this request has {numbers // rows} numbers, and the limit of this network is "
        f"{most}; send smaller ones"
    )


def too_many_tokens(texts: int, longest: int) -> str | None:
    """None if a request may have so many. A single text may be as long as its network takes."""
    if texts == 1 or texts * longest <= TOKENS:
        return None
    return (
        f"the {texts} texts of this request have up to {longest} tokens each, together "
        f"{texts * longest}, more than the limit of {TOKENS}; send fewer at once"
    )
