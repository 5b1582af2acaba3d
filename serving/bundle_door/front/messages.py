"""Messages over gRPC, before Triton reads them: what may be asked, and by whom; how they may arrive
in Envoy, in whose memory they are until they are complete; and how many fields each may have, and
how long.

In Envoy two scripts hold to it, which begin with the numbers from here: arrivals.lua, for which
limits.py has the same of bodies over HTTP; and asked.lua, for single messages. Those of streams are
checked here, in the same way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path

from bundle_door import limits
from bundle_door.answers import Refused
from bundle_door.requests import CLIENT_HEADER
from bundle_door.triton import AWAY, NO_CLASSES
from bundle_door.wire.inference import CLASSES

TRITON = "/inference.GRPCInferenceService/"
INFER = f"{TRITON}ModelInfer"
STREAM = f"{TRITON}ModelStreamInfer"
LOAD = f"{TRITON}RepositoryModelLoad"
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
OPEN_METHODS = [
    f"{TRITON}{name}" for name in (
        "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelStatistics",
    )
]  # fmt: skip
# What is asked before a model is.
ABOUT_A_MODEL = [f"{TRITON}{name}" for name in ("ModelMetadata", "ModelConfig")]
ADMIN_METHODS = [
    f"{TRITON}{name}" for name in (
        "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
        "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
        "TraceSetting", "LogSettings",
    )
]  # fmt: skip
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE = "3", "4", "8", "14"

# Of Envoy's own memory; and how much of it all messages may take. From the larger share on it ends
# those by itself that hold most, of any client.
HEAP_BYTES, ROOM, FULL = 512 << 20, 0.65, 0.7
# Larger ones are not kept until they are answered, so not sent again if Triton ends meanwhile.
KEPT_BYTES = 16 << 20
# A client may hold so many times as much as it leaves to all others: five messages of 64 MB, if it
# is alone. If it holds more than it leaves, its messages may make pauses of so many seconds.
MOST_TIMES, PAUSE_S = 16, 3

# Where the script notes how far a message is.
STAGES = "bundle.arrivals"
# By which it numbers streams, and where it tells of their messages: stream, message, bytes.
NUMBER, TOLD = "bundle-stream", "/internal/arriving/"
# Where it is asked whether an output has classes.
HAVE_CLASSES = "/internal/classes"

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


NAME = Bound("a name", longest=limits.MOST_NAME)
PARAMETERS = Bound("parameters", limits.MOST_PARAMETERS, limits.MOST_NAME + limits.MOST_TEXT)
INPUT = {1: NAME, 2: NAME, 3: Bound("a shape", longest=limits.MOST_SHAPE), 4: PARAMETERS}
CONTENTS: Mapping[int, Bound] = {}
MESSAGE = {
    1: NAME,
    2: NAME,
    3: Bound("an id", longest=limits.MOST_ID),
    4: PARAMETERS,
    5: Bound("inputs", limits.MOST_TENSORS, inside={**INPUT, 5: Bound(inside=CONTENTS)}),
    6: Bound("outputs", limits.MOST_TENSORS, inside={1: NAME, 2: PARAMETERS}),
    7: Bound("raw_input_contents", limits.MOST_TENSORS),
}

malformed = partial(Refused, 400, "the message is malformed")


def check(message: bytes) -> None:
    """Raises `Refused`. Reads no values, and stops at the first bound."""
    _check(message, 0, len(message), MESSAGE, limits.MOST_VALUES)


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
            raise Refused(
                400, f"more than {limits.MOST_VALUES} values; send them as raw_input_contents"
            )
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


def clear_room(threads: int, shared: Path) -> None:
    """Before Envoy starts, of which each thread has a Lua of its own: in this file they tell each
    other what their messages take."""
    shared.write_bytes(bytes(2 * 8 * threads))


def write_arrivals(
    at_door: bool, has_keys: bool = False, threads: int = 1, shared: Path | None = None
) -> str:
    """For Envoy's Lua. By key, where there are keys; else by address. A balancer sends a message on
    as it comes, but holds the first part of it, and a copy of that, until it is answered."""
    values = {
        "ROOM": int(ROOM * HEAP_BYTES),
        "KEPT": KEPT_BYTES if at_door else math.inf,
        "COPIES": 1 if at_door else 2,
        "MOST_OF_ONE": math.inf if at_door else 2 * KEPT_BYTES,
        "GATHERS": at_door,
        "MOST_TIMES": MOST_TIMES,
        "SLOWEST": limits.SLOWEST,
        "BEGIN_MS": int(limits.BEGIN_S * 1000),
        "AHEAD_MS": int(limits.AHEAD_S * 1000),
        "LATE_MS": int(limits.LATE_S * 1000),
        "STAGES": STAGES,
        "CLIENT": CLIENT_HEADER if has_keys else None,
        "NUMBER": NUMBER,
        "TOLD": TOLD,
        "THREADS": threads,
        "SHARED": str(shared) if shared else None,
    }
    return write_program("arrivals.lua", values)


def write_asked() -> str:
    """For Envoy's Lua, with these bounds."""
    values = {
        "MOST_VALUES": limits.MOST_VALUES,
        "MOST_NUMBER": MOST_NUMBER,
        "MESSAGE": MESSAGE,
        "CLASSES": CLASSES,
        "HAVE_CLASSES": HAVE_CLASSES,
        "NO_CLASSES": NO_CLASSES,
        "AWAY": AWAY,
    }
    return write_program("asked.lua", values)


def write_program(script: str, values: Mapping[str, object]) -> str:
    head = [f"local {name} = {_write(value)}" for name, value in values.items()]
    return "\n".join([*head, Path(__file__).with_name(script).read_text()])


def _write(value: object) -> str:
    if value is None:
        return "nil"
    if value == math.inf:
        return "math.huge"
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        entries = (f"[{_write(key)}] = {_write(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    return json.dumps(value, ensure_ascii=False)
