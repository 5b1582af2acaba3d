"""The rehearsal's plan file: a magic line, one line of JSON, the bytes of the ONNX file.

Written by the rehearsal's trtexec, read by it and by the rehearsal's tensorrt backend. Bound to a
TensorRT version and a compute capability as NVIDIA's plans are. What is wrong with a plan is put
in TensorRT's own words, so that its logs read like the real ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = b"triton-bundle rehearsal plan 1\n"

# VERSION at the commits that the option tables name; a version may be given without its build.
BUILDS = {"10.16.1": 11, "11.1.0": 106}

# 240 is 10.11's and 243 is 11.2's, by people's error logs; 10.16's and 11.1's were not to be found.
SERIALIZATION = {10: 240, 11: 243}

Version = tuple[int, int, int, int]


class PlanError(RuntimeError):
    """TensorRT would not load this plan here; the message is TensorRT's."""

    def __init__(self, code: int, note: str) -> None:
        super().__init__(f"IRuntime::deserializeCudaEngine: Error Code {code}: {note}")
        self.code = code


def version(text: str) -> Version:
    """10.16.1 or 10.16.1.11 -> (10, 16, 1, 11)"""
    numbers = [int(part) for part in text.split(".")]
    if len(numbers) == 3:
        numbers.append(BUILDS.get(text, 0))
    major, minor, patch, build = numbers
    return major, minor, patch, build


def dotted(parts: Version) -> str:
    return ".".join(str(part) for part in parts)


@dataclass(frozen=True)
class Machine:
    """What the rehearsal plays: the installed TensorRT and the GPU."""

    tensorrt: Version
    compute_capability: str

    @classmethod
    def played(cls) -> Machine:
        missing = [
            name
            for name in ("REHEARSAL_TENSORRT", "REHEARSAL_COMPUTE_CAPABILITY")
            if not os.environ.get(name)
        ]
        if missing:
            raise SystemExit(f"rehearsal: set {' and '.join(missing)}, for example 11.1.0 and 8.6")
        return cls(
            version(os.environ["REHEARSAL_TENSORRT"]),
            os.environ["REHEARSAL_COMPUTE_CAPABILITY"],
        )


@dataclass(frozen=True)
class Plan:
    header: dict[str, Any]
    onnx: bytes

    def dump(self) -> bytes:
        sealed = self.header | {
            "onnx_bytes": len(self.onnx),
            "onnx_sha256": hashlib.sha256(self.onnx).hexdigest(),
        }
        return MAGIC + json.dumps(sealed, sort_keys=True).encode() + b"\n" + self.onnx


def header_of(content: bytes) -> dict[str, Any] | None:
    """The header, or None where the file does not begin as a plan does."""
    if not content.startswith(MAGIC):
        return None
    line, end, _ = content[len(MAGIC) :].partition(b"\n")
    try:
        header = json.loads(line)
    except ValueError:
        return None
    return header if end and isinstance(header, dict) else None


def deserialized(path: Path, machine: Machine) -> Plan:
    """As IRuntime::deserializeCudaEngine; PlanError where that returns null."""
    content = path.read_bytes()
    header = header_of(content)
    if header is None:
        # Wording: TensorRT 10's prefix; the sentence as in NVIDIA's issues since 8.x.
        raise _serialization("magicTagRead == kMAGIC_TAG", "Magic tag does not match")
    _same_version(version(header["tensorrt"]), machine.tensorrt)
    onnx = content.split(b"\n", 2)[2]
    if len(onnx) != header["onnx_bytes"]:
        raise _serialization(
            "sizeRead == static_cast<uint64_t>(mEnd - mCurrent)",
            "Size specified in header does not match archive size",
        )
    if hashlib.sha256(onnx).hexdigest() != header["onnx_sha256"]:
        # Ours: TensorRT has no checksum over the whole, and what it says depends on the place.
        raise _serialization("sha256", "rehearsal: the plan's bytes were changed")
    if header["compute_capability"] != machine.compute_capability:
        # NVIDIA/TensorRT#3130 and TensorRT 10.8 in deepinsight/insightface#2882: this device first.
        raise _api_usage(
            "The engine plan file is generated on an incompatible device, expecting compute "
            f"{machine.compute_capability} got compute {header['compute_capability']}, "
            "please rebuild."
        )
    return Plan(header, onnx)


def _same_version(built: Version, here: Version) -> None:
    if built == here:
        return
    if built[0] != here[0]:
        # TensorRT 10.11 in NVIDIA issues and third-party logs: formats that differ are seen first.
        current, serialized = (SERIALIZATION.get(each[0], 0) for each in (here, built))
        raise _serialization(
            "stdVersionRead == kSERIALIZATION_VERSION",
            "Version tag does not match. "
            f"Note: Current Version: {current}, Serialized Engine Version: {serialized}",
        )
    # TensorRT 10.12 and 10.14 in third-party logs.
    raise _api_usage(
        "The engine plan file is not compatible with this version of TensorRT, expecting library "
        f"version {dotted(here)} got {dotted(built)}, please rebuild."
    )


def _serialization(condition: str, note: str) -> PlanError:
    return PlanError(1, f"Serialization (Serialization assertion {condition} failed.{note})")


def _api_usage(note: str) -> PlanError:
    return PlanError(6, f"API Usage Error ({note})")
