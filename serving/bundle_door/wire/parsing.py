"""JSON -> typed values; mismatches are refused with their place."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from bundle_door.answers import Refused
from bundle_door.limits import MEGABYTE, Limits

T = TypeVar("T")


def parse(text: bytes | memoryview, kind: type[T], what: str, limits: Limits) -> T:
    if len(text) > limits.json_bytes:
        raise Refused(
            413,
            f"{what} is larger than {limits.json_bytes / MEGABYTE:g} MB; send large tensors as"
            " binary data",
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
