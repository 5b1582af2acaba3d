"""A tensor's values: from JSON to Triton's bytes and back."""

import math
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any, get_args

from bundle_door.answers import Refused
from bundle_door.limits import MOST_OBJECTS
from bundle_door.wire.kserve import Datatype, decode
from bundle_serving.protocol.gists import LENGTH, read_texts

# Type codes of Python's arrays.
INTEGERS = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
}  # fmt: skip
FLOATS = {"FP32": "f", "FP64": "d"}
# What a value is in JSON.
KINDS: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, int), **dict.fromkeys(FLOATS, float), "BOOL": bool, "BYTES": str,
}  # fmt: skip
SIZES = {name: array(code).itemsize for name, code in (INTEGERS | FLOATS).items()}
SIZES |= {"BOOL": 1, "FP16": 2, "BF16": 2}

assert {*SIZES, "BYTES"} == {*get_args(Datatype)}


def from_json(data: bytes, datatype: str, shape: Sequence[int], name: str) -> bytes:
    """The tensor's bytes, from the text of `data` in a request."""
    values = _flat(data, datatype, len(shape), name)
    expected = math.prod(shape)
    if len(values) != expected:
        raise Refused(
            400,
            f"input '{name}': 'data' has {len(values)} values, but its shape requires {expected}",
        )
    if datatype == "BYTES":
        return b"".join(LENGTH.pack(len(text)) + text for text in map(str.encode, values))
    if datatype == "BOOL":
        return bytes(values)
    try:
        return array((INTEGERS | FLOATS)[datatype], values).tobytes()
    except OverflowError:
        raise Refused(400, f"input '{name}': 'data' has a value beyond {datatype}") from None


def to_json(raw: bytes, datatype: str) -> list[Any]:
    """A tensor's values in one list; None for a datatype that JSON has no numbers for."""
    if datatype == "BYTES":
        return [*read_texts(raw)]
    if datatype == "BOOL":
        return [value != 0 for value in raw]
    if datatype not in INTEGERS | FLOATS:
        raise Refused(400, f"{datatype} cannot be sent as JSON; ask for it with binary_data")
    return array((INTEGERS | FLOATS)[datatype], raw).tolist()


def _flat(data: bytes, datatype: str, dimensions: int, name: str) -> list[Any]:
    """The values in one list, whether flat or nested like the shape."""
    depth = _depth(data)
    if not 1 <= depth <= max(dimensions, 1):
        raise Refused(
            400, f"input '{name}': 'data' is nested {depth} deep, but its shape has {dimensions}"
        )
    # The lists in it, and the texts, are at most so many.
    if max(data.count(b"["), data.count(b'"') // 2) > MOST_OBJECTS:
        raise Refused(
            413,
            f"input '{name}': 'data' has more than {MOST_OBJECTS} lists or texts; send a flat list,"
            " or binary data",
        )
    if (kind := KINDS.get(datatype)) is None:
        raise Refused(
            400, f"input '{name}': {datatype} cannot be sent as JSON; send it with binary_data_size"
        )
    for _ in range(depth):
        kind = list[kind]  # type: ignore[valid-type]
    values: list[Any] = decode(data, kind, f"input '{name}': 'data' is not {datatype}")
    for _ in range(depth - 1):
        values = list(chain.from_iterable(values))
    return values


def _depth(data: bytes) -> int:
    # No value begins with a bracket, so the leading brackets are the lists around the first value.
    squeezed = data[:1000].translate(None, b" \t\r\n")
    return len(squeezed) - len(squeezed.lstrip(b"["))
