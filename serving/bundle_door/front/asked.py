"""What a ModelInferRequest may ask, before Triton reads it: how many fields, and how long.

Here for streams; in Envoy, for single messages, asked.lua goes through them in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bundle_door.answers import Refused
from bundle_door.front.lua import write_program
from bundle_door.limits import (
    MOST_ID,
    MOST_NAME,
    MOST_PARAMETERS,
    MOST_SHAPE,
    MOST_TENSORS,
    MOST_TEXT,
    MOST_VALUES,
)

# Of a field. Triton's reader leaves out what is above, so that another field would be meant.
MOST_NUMBER = (1 << 29) - 1
# How a field is written: as a number of seven bits a byte, in so many bytes, or with its length.
VARINT, BYTES, SIZES = 0, 2, {1: 8, 5: 4}


@dataclass(frozen=True)
class Bound:
    what: str = ""
    # How many of this field there may be, and how long each.
    most: int | None = None
    longest: int | None = None
    inside: Mapping[int, Bound] | None = None


NAME = Bound("a name", longest=MOST_NAME)
PARAMETERS = Bound("parameters", MOST_PARAMETERS, MOST_NAME + MOST_TEXT)
INPUT = {1: NAME, 2: NAME, 3: Bound("a shape", longest=MOST_SHAPE), 4: PARAMETERS}
CONTENTS: Mapping[int, Bound] = {}
MESSAGE = {
    1: NAME,
    2: NAME,
    3: Bound("an id", longest=MOST_ID),
    4: PARAMETERS,
    5: Bound("inputs", MOST_TENSORS, inside={**INPUT, 5: Bound(inside=CONTENTS)}),
    6: Bound("outputs", MOST_TENSORS, inside={1: NAME, 2: PARAMETERS}),
    7: Bound("raw_input_contents", MOST_TENSORS),
}

malformed = partial(Refused, 400, "the message is malformed")


def check(message: bytes) -> None:
    """Raises `Refused`. Reads no values, and stops at the first bound."""
    _check(message, 0, len(message), MESSAGE, MOST_VALUES)


def _check(message: bytes, place: int, stop: int, known: Mapping[int, Bound], left: int) -> int:
    """How many more fields there may be."""
    seen: dict[int, int] = {}
    while place < stop:
        tag, place = _number(message, place, stop)
        number, kind = tag >> 3, tag & 7
        if kind == BYTES:
            length, place = _number(message, place, stop)
        elif kind == VARINT:
            length, place = 0, _number(message, place, stop)[1]
        elif kind in SIZES:
            length = SIZES[kind]
        else:
            raise malformed()
        if not 0 < number <= MOST_NUMBER or place + length > stop:
            raise malformed()
        if not left:
            raise Refused(400, f"more than {MOST_VALUES} values; send them as raw_input_contents")
        left -= 1
        bound = known.get(number) if kind == BYTES else None
        if bound:
            seen[number] = seen.get(number, 0) + 1
            if bound.most is not None and seen[number] > bound.most:
                raise Refused(400, f"more than {bound.most} {bound.what}; send fewer")
            if bound.longest is not None and length > bound.longest:
                raise Refused(400, f"{bound.what} of {length} bytes; send {bound.longest} at most")
            if bound.inside is not None:
                left = _check(message, place, place + length, bound.inside, left)
        place += length
    return left


def _number(message: bytes, place: int, stop: int) -> tuple[int, int]:
    """And the place behind it."""
    value = 0
    for count in range(min(10, stop - place)):
        byte = message[place + count]
        value |= (byte & 127) << 7 * count
        if byte < 128:
            return value, place + count + 1
    raise malformed()


def program() -> str:
    """For Envoy's Lua, with these bounds."""
    bounds = {"MOST_VALUES": MOST_VALUES, "MOST_NUMBER": MOST_NUMBER, "MESSAGE": MESSAGE}
    return write_program("asked.lua", bounds)
