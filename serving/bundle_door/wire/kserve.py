"""The JSON of requests in KServe's protocol over HTTP, with Triton's extensions -> typed values.

Mismatches are refused with their place, as are unknown fields: a misspelt one would otherwise be
ignored silently.
"""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bundle_door import limits
from bundle_door.answers import Refused

T = TypeVar("T")

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
]  # fmt: skip

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=limits.MOST_NAME)]
Value = bool | int | float | Annotated[str, Meta(max_length=limits.MOST_TEXT)]
Parameters = Annotated[dict[Name, Value], Meta(max_length=limits.MOST_PARAMETERS)]


class SharedMemory(Struct, forbid_unknown_fields=True):
    shared_memory_region: Name | UnsetType = UNSET
    shared_memory_byte_size: Count = 0
    shared_memory_offset: Count = 0


class InputParameters(SharedMemory, forbid_unknown_fields=True):
    binary_data_size: Count | UnsetType = UNSET


class OutputParameters(SharedMemory, forbid_unknown_fields=True):
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
    return decode(text, kind, what)


def decode(text: bytes | memoryview, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise Refused(400, f"{what} is nested too deep") from None
    except UnicodeDecodeError:
        raise Refused(400, f"{what} is not UTF-8") from None
    except msgspec.MsgspecError as fault:
        raise Refused(400, f"{what}: {fault}") from None
