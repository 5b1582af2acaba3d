"""The door answers good requests as Triton's own HTTP server does, to the byte."""

import gzip
import json
import re
import struct
import zlib
from typing import Any

import pytest

from bundle_serving.process.guard import HEADER
from tests.door.servers import KEY, Behind

RAW = {"Inference-Header-Content-Length": "0"}
ADMIN = {HEADER: KEY}
JPEG = b"\xff\xd8" + bytes(range(256)) * 8
ECHO = "/v2/models/echo/infer"
PICTURE = "/v2/models/picture/infer"

COMPARED = ("content-type", "content-encoding", "inference-header-content-length")


def tensor(datatype: str, data: list[Any], **more: Any) -> dict[str, Any]:
    name = "STRING" if datatype == "BYTES" else datatype
    return {"name": f"IN_{name}", "datatype": datatype, "shape": [1, 2], "data": data, **more}


def asked(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}).encode()


def outputs(*names: str, **parameters: Any) -> list[dict[str, Any]]:
    return [{"name": name, "parameters": parameters} for name in names]


def with_binary(header: dict[str, Any], *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    text = json.dumps(header).encode()
    return text + b"".join(blobs), {"Inference-Header-Content-Length": str(len(text))}


def binary_tensor(datatype: str, blob: bytes) -> dict[str, Any]:
    described = tensor(datatype, [], parameters={"binary_data_size": len(blob)})
    del described["data"]
    return described


def echoes(datatype: str, data: list[Any]) -> tuple[str, bytes, dict[str, str]]:
    name = "STRING" if datatype == "BYTES" else datatype
    return ECHO, asked(tensor(datatype, data), outputs=outputs(f"OUT_{name}")), {}


FP16 = struct.pack("<2e", 0.5, -2)
BLOB, BLOB_HEADER = with_binary(
    {
        "inputs": [binary_tensor("FP16", FP16), binary_tensor("BOOL", b"\1\0")],
        "outputs": outputs("OUT_FP16", "OUT_BOOL", binary_data=True),
    },
    FP16,
    b"\1\0",
)
MIXED, MIXED_HEADER = with_binary(
    {
        "inputs": [tensor("INT32", [5, -6]), binary_tensor("BOOL", b"\1\0")],
        "outputs": [*outputs("OUT_INT32", binary_data=True), *outputs("OUT_BOOL")],
    },
    b"\1\0",
)
CLASSES = asked(
    {"name": "INPUT", "datatype": "UINT8", "shape": [1, 4], "data": [255, 0, 0, 200]},
    outputs=outputs("OUTPUT", classification=2),
)
FOUR = asked(tensor("INT64", [1, 2]), outputs=outputs("OUT_INT64"))

INFERENCES = {
    "bool": echoes("BOOL", [True, False]),
    "uint8": echoes("UINT8", [0, 255]),
    "uint16": echoes("UINT16", [0, 65535]),
    "uint32": echoes("UINT32", [0, 2**32 - 1]),
    "uint64": echoes("UINT64", [0, 2**64 - 1]),
    "int8": echoes("INT8", [-128, 127]),
    "int16": echoes("INT16", [-(2**15), 2**15 - 1]),
    "int32": echoes("INT32", [-(2**31), 2**31 - 1]),
    "int64": echoes("INT64", [-(2**63), 2**63 - 1]),
    "fp32": echoes("FP32", [0.1, -3]),
    "fp64": echoes("FP64", [0.1, 1e300]),
    "bytes": echoes("BYTES", ["Grüße", ""]),
    "nested": (ECHO, asked(tensor("INT8", [[1, 2]]), outputs=outputs("OUT_INT8")), {}),
    "binary": (ECHO, BLOB, BLOB_HEADER),
    "json and binary": (ECHO, MIXED, MIXED_HEADER),
    "binary by default": (
        ECHO, asked(tensor("INT8", [1, 2]), parameters={"binary_data_output": True}), {},
    ),
    "an id": (ECHO, asked(tensor("INT8", [1, 2]), id="mine", outputs=outputs("OUT_INT8")), {}),
    "parameters": (
        ECHO,
        asked(
            tensor("INT8", [1, 2]),
            parameters={"a": "b", "c": 1, "d": True, "sequence_id": 3, "timeout": 9_000_000},
            outputs=outputs("OUT_INT8"),
        ),
        {},
    ),
    "a version": ("/v2/models/echo/versions/1/infer", FOUR, {}),
    "a raw picture": (PICTURE, JPEG, RAW),
    "a raw text": ("/v2/models/text/infer", b"Hello", RAW),
    "classes": (PICTURE, CLASSES, {}),
    "gzip": (ECHO, gzip.compress(FOUR), {"Content-Encoding": "gzip"}),
    "deflate": (ECHO, zlib.compress(FOUR), {"Content-Encoding": "deflate"}),
    "binary in gzip": (ECHO, gzip.compress(BLOB), {**BLOB_HEADER, "Content-Encoding": "gzip"}),
    "raw in gzip": (PICTURE, gzip.compress(JPEG), {**RAW, "Content-Encoding": "gzip"}),
    "answer in gzip": (ECHO, FOUR, {"Accept-Encoding": "gzip"}),
    "answer in deflate": (ECHO, BLOB, {**BLOB_HEADER, "Accept-Encoding": "deflate"}),
    "answer in the favourite": (ECHO, FOUR, {"Accept-Encoding": "gzip;q=0.1, deflate;q=0.7"}),
    "answer as it is": (ECHO, FOUR, {"Accept-Encoding": "gzip;q=0, br"}),
    "a charset of the JSON": (ECHO, FOUR, {"Content-Type": "application/json; charset=utf-8"}),
}  # fmt: skip


@pytest.mark.parametrize("name", INFERENCES)
def test_inference(server: Behind, name: str) -> None:
    path, body, headers = INFERENCES[name]
    same(server.ask("POST", path, body, headers), server.ask_triton("POST", path, body, headers))


REFUSALS = {
    "an unknown model": ("POST", "/v2/models/none/infer", FOUR, 404),
    "an unknown version": ("POST", "/v2/models/echo/versions/9/infer", FOUR, 404),
    "an unknown input": (
        "POST", ECHO, FOUR.replace(b"IN_INT64", b"IN_NONE"), 400,
    ),
    "a wrong datatype": ("POST", ECHO, FOUR.replace(b'"INT64"', b'"UINT64"'), 400),
    "the model's refusal": ("POST", PICTURE, CLASSES.replace(b"255", b"254"), 400),
    "an unknown output": ("POST", ECHO, FOUR.replace(b"OUT_INT64", b"OUT_NONE"), 400),
    "metadata of an unknown model": ("GET", "/v2/models/none", None, 404),
    "config of an unknown model": ("GET", "/v2/models/none/config", None, 404),
    "an unknown model's readiness": ("GET", "/v2/models/none/ready", None, 400),
    "an unknown path": ("GET", "/v2/none", None, 404),
    "a wrong method": ("GET", ECHO, None, 405),
    "a wrong method for metadata": ("POST", "/v2/models/echo", b"", 405),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(server: Behind, name: str) -> None:
    method, path, body, status = REFUSALS[name]
    ours, theirs = server.ask(method, path, body), server.ask_triton(method, path, body)
    assert ours[0] == status
    assert json.loads(ours[2]) == json.loads(theirs[2])


READ = [
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/picture", "/v2/models/echo",
    "/v2/models/echo/versions/1", "/v2/models/picture/ready", "/v2/models/picture/config",
    "/v2/models/echo/config", "/v2/models/text/versions/1/config",
]  # fmt: skip
READ_BY_THE_ADMIN = [
    "/v2/trace/setting", "/v2/models/echo/trace/setting", "/v2/logging",
    "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status",
    "/v2/models/stats", "/v2/models/picture/stats", "/v2/models/picture/versions/1/stats",
]  # fmt: skip


@pytest.mark.parametrize("path", READ)
def test_reading(server: Behind, path: str) -> None:
    same_values(server.ask("GET", path), server.ask_triton("GET", path))


@pytest.mark.parametrize("path", READ_BY_THE_ADMIN)
def test_reading_by_the_admin(server: Behind, path: str) -> None:
    same_values(server.ask("GET", path, headers=ADMIN), server.ask_triton("GET", path))


CHANGES = [
    ("/v2/repository/index", b""),
    ("/v2/repository/index", b'{"ready":true}'),
    ("/v2/repository/models/text/load", b""),
    ("/v2/repository/models/none/load", b""),
    ("/v2/repository/models/none/unload", b'{"parameters":{"unload_dependents":true}}'),
    ("/v2/systemsharedmemory/region/r/register", b'{"key":"/none","byte_size":8}'),
    ("/v2/systemsharedmemory/unregister", b""),
    ("/v2/systemsharedmemory/region/none/unregister", b""),
    ("/v2/cudasharedmemory/unregister", b""),
    ("/v2/trace/setting", b'{"trace_rate":"500","trace_level":["TIMESTAMPS"]}'),
    ("/v2/trace/setting", b'{"trace_rate":null,"trace_level":["OFF"]}'),
    ("/v2/trace/setting", b'{"trace_rate":"many"}'),
    ("/v2/logging", b'{"log_verbose_level":0,"log_info":true,"log_format":"ISO8601"}'),
    ("/v2/logging", b'{"log_format":"default"}'),
]


@pytest.mark.parametrize("path, body", CHANGES)
def test_changes_by_the_admin(server: Behind, path: str, body: bytes) -> None:
    same_values(server.ask("POST", path, body, ADMIN), server.ask_triton("POST", path, body))


def test_unload_and_load_again(server: Behind) -> None:
    for asking in (server.ask, server.ask_triton):
        assert asking("POST", "/v2/repository/models/text/unload", b"", ADMIN)[0] == 200
        assert asking("GET", "/v2/models/text/ready")[0] == 400
        assert asking("POST", "/v2/repository/models/text/load", b"", ADMIN)[0] == 200
        assert asking("GET", "/v2/models/text/ready")[0] == 200


def same(ours: tuple[int, Any, bytes], theirs: tuple[int, Any, bytes]) -> None:
    assert ours[0] == theirs[0], (ours, theirs)
    assert decoded(ours) == decoded(theirs)
    for header in COMPARED:
        assert ours[1].get(header) == theirs[1].get(header), header


def same_values(ours: tuple[int, Any, bytes], theirs: tuple[int, Any, bytes]) -> None:
    assert ours[0] == theirs[0], (ours, theirs)
    assert values(ours[2]) == values(theirs[2])
    assert ours[1].get("content-type") == theirs[1].get("content-type") or not ours[2]


def values(body: bytes) -> Any:
    if not body:
        return None
    # What each of the two requests may change by itself.
    return json.loads(re.sub(rb'"(last_inference|ns)": ?\d+', rb'"\1":0', body))


def decoded(answer: tuple[int, Any, bytes]) -> bytes:
    if answer[1].get("content-encoding") == "gzip":
        return gzip.decompress(answer[2])
    if answer[1].get("content-encoding") == "deflate":
        return zlib.decompress(answer[2])
    return answer[2]
