"""The JSON of KServe's protocol over HTTP, with Triton's extensions: requests -> typed values; and
tensors' values -> Triton's bytes, and back.

Mismatches are refused with their place, as are unknown fields: a misspelt one would otherwise be
ignored silently.
"""

import math
import re
import sys
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bundle_door import limits
from bundle_door.answers import Refused
from bundle_serving.protocol.gists import LENGTH, read_texts

T = TypeVar("T")

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
]  # fmt: skip

# Type codes of Python's arrays.
INTEGERS = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
}  # fmt: skip
FLOATS = {"FP32": "f", "FP64": "d"}
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
# What a value is in JSON.
KINDS: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, int), **dict.fromkeys(FLOATS, Finite), "BOOL": bool, "BYTES": str,
}  # fmt: skip
# Numbers near a double's limits, for which msgspec takes 20 µs, and Python a third of one.
NEAR_THE_LIMITS = re.compile(rb"e[+-]?0*[1-9]\d\d")
BY_PYTHON = msgspec.json.Decoder(float_hook=float)
SIZES = {name: array(code).itemsize for name, code in (INTEGERS | FLOATS).items()}
SIZES |= {"BOOL": 1, "FP16": 2, "BF16": 2}

assert {*SIZES, "BYTES"} == {*get_args(Datatype)}

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=limits.MOST_NAME)]
Value = bool | int | float | Annotated[str, Meta(max_length=limits.MOST_TEXT)]
# Read later: of a name that is given a million times, only the last value.
Parameters = Annotated[dict[Name, Raw], Meta(max_length=limits.MOST_PARAMETERS)]


class TensorParameters(Struct, forbid_unknown_fields=True):
    shared_memory_region: Name | UnsetType = UNSET
    shared_memory_byte_size: Count = 0
    shared_memory_offset: Count = 0
    # As what MLServer's clients take the values: Triton does not ask.
    content_type: Name = ""


class InputParameters(TensorParameters, forbid_unknown_fields=True):
    binary_data_size: Count | UnsetType = UNSET


class OutputParameters(TensorParameters, forbid_unknown_fields=True):
    binary_data: bool = False
    classification: Count = 0


class Input(Struct, forbid_unknown_fields=True):
    name: Name
    datatype: Datatype
    shape: Annotated[list[Count], Meta(max_length=32)]
    parameters: InputParameters = msgspec.field(default_factory=InputParameters)
    data: Raw | UnsetType = UNSET


class Output(Struct, forbid_unknown_fields=True):
    name: Name
    parameters: OutputParameters = msgspec.field(default_factory=OutputParameters)


class Inference(Struct, forbid_unknown_fields=True):
    inputs: Annotated[list[Input], Meta(max_length=limits.MOST_TENSORS)]
    outputs: Annotated[list[Output], Meta(max_length=limits.MOST_TENSORS)] = []
    parameters: Parameters = {}
    id: Annotated[str, Meta(max_length=limits.MOST_ID)] = ""
    # KServe's client repeats the path's, which alone counts: a candidate is asked in its place.
    model_name: Name = ""


class Index(Struct, forbid_unknown_fields=True):
    ready: bool = False


class Load(Struct, forbid_unknown_fields=True):
    parameters: dict[str, str] = {}


class UnloadParameters(Struct, forbid_unknown_fields=True):
    unload_dependents: bool = False


class Unload(Struct, forbid_unknown_fields=True):
    parameters: UnloadParameters = msgspec.field(default_factory=UnloadParameters)


class SystemRegion(Struct, forbid_unknown_fields=True):
    key: str
    byte_size: Count
    offset: Count = 0


class RawHandle(Struct, forbid_unknown_fields=True):
    b64: bytes


class CudaRegion(Struct, forbid_unknown_fields=True):
    raw_handle: RawHandle
    byte_size: Count
    device_id: Count = 0


REGIONS = {"system": SystemRegion, "cuda": CudaRegion}

# null resets a setting to its value at the start.
TraceSettings = dict[str, str | list[str] | None]
LogSettings = dict[str, bool | Annotated[int, Meta(ge=0, lt=2**32)] | str | None]


def parse(text: bytes | memoryview, kind: type[T]) -> T:
    what = "the request's JSON"
    if len(text) > limits.MOST_JSON:
        raise Refused(
            413,
            f"{what} is larger than {limits.MOST_JSON / limits.MEGABYTE:g} MB;"
            " send large tensors as binary data",
        )
    if text[: len(BOM_UTF8)] == BOM_UTF8:  # of programs on Windows
        text = text[len(BOM_UTF8) :]
    asked: T = decode(text, kind, what)
    return asked


def decode(
    text: bytes | memoryview | Raw,
    kind: Any,
    what: str,
    read: Callable[..., Any] = msgspec.json.decode,
) -> Any:
    try:
        return read(text, type=kind)
    except RecursionError:
        raise Refused(400, f"{what} is nested too deep") from None
    except UnicodeDecodeError:
        raise Refused(400, f"{what} is not UTF-8") from None
    except msgspec.MsgspecError as fault:
        raise Refused(400, f"{what}: {fault}") from None


def _read_values(text: bytes, type: Any) -> Any:
    if NEAR_THE_LIMITS.search(text.lower()):
        return msgspec.convert(BY_PYTHON.decode(text), type)
    return msgspec.json.decode(text, type=type)


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
    # No value begins with a bracket, so the leading brackets are the lists around the first value.
    squeezed = data[:1000].translate(None, b" \t\r\n")
    depth = len(squeezed) - len(squeezed.lstrip(b"["))
    if not 1 <= depth <= max(dimensions, 1):
        raise Refused(
            400, f"input '{name}': 'data' is nested {depth} deep, but its shape has {dimensions}"
        )
    # The lists in it, and the texts, are at most so many.
    if max(data.count(b"["), data.count(b'"') // 2) > limits.MOST_OBJECTS:
        raise Refused(
            413,
            f"input '{name}': 'data' has more than {limits.MOST_OBJECTS} lists or texts;"
            " send a flat list, or binary data",
        )
    if (kind := KINDS.get(datatype)) is None:
        raise Refused(
            400, f"input '{name}': {datatype} cannot be sent as JSON; send it with binary_data_size"
        )
    for _ in range(depth):
        kind = list[kind]  # type: ignore[valid-type]
    what = f"input '{name}': 'data' is not {datatype}"
    values: list[Any] = decode(data, kind, what, _read_values)
    for _ in range(depth - 1):
        values = list(chain.from_iterable(values))
    return values
