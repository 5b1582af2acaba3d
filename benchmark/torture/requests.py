"""Requests that no client of good will sends: those that once ended the server, and mutants."""

import gzip
import json
import random
import re
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO

RAW = {"Inference-Header-Content-Length": "0"}


@dataclass(frozen=True)
class Hostile:
    """A request as it goes over the wire; its headers may claim a longer body."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    path: str = "/"
    method: str = "POST"
    # One chunk of this many bytes after the other.
    chunk: int | None = None

    def pieces(self) -> Iterator[bytes]:
        framing = {"Transfer-Encoding": "chunked"} if self.chunk else {}
        if not self.chunk and "Content-Length" not in self.headers:
            framing = {"Content-Length": str(len(self.body))}
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._headers(framing).items()]
        yield "\r\n".join([*lines, "", ""]).encode("latin-1")
        yield from self._cut_in_chunks(self.chunk) if self.chunk else [self.body]

    def _headers(self, framing: dict[str, str]) -> dict[str, str]:
        return {"Host": "localhost", "Connection": "close", **framing, **self.headers}

    def _cut_in_chunks(self, size: int) -> Iterator[bytes]:
        starts = range(0, len(self.body), size)
        chunks = (self.body[start : start + size] for start in starts)
        framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
        for start in range(0, len(framed), 10_000):
            yield b"".join(framed[start : start + 10_000])
        yield b"0\r\n\r\n"


@dataclass(frozen=True)
class Target:
    """A model, and an input that it answers."""

    model: str
    tensor: Mapping[str, Any]
    binary: bytes  # the same, behind a request's JSON

    def request(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, **how: Any
    ) -> Hostile:
        return Hostile(status, body, headers or {}, f"/v2/models/{self.model}/infer", **how)

    def make_body(self, **changes: object) -> bytes:
        return json.dumps({"inputs": [{**self.tensor, **changes}]}).encode()

    def seeds(self) -> list[Hostile]:
        """What is answered, and the small ones of what is not: for mutants."""
        asked = self.make_body()
        return [
            self.request(200, asked),
            self.with_binary(200),
            self.request(200, gzip.compress(asked), {"Content-Encoding": "gzip"}),
            self.request(200, zlib.compress(asked), {"Content-Encoding": "deflate"}),
            Hostile(200, path=f"/v2/models/{self.model}", method="GET"),
            *(request for request in attacks(self).values() if len(request.body) < 10_000),
        ]

    def with_binary(self, status: int) -> Hostile:
        tensor = {name: value for name, value in self.tensor.items() if name != "data"}
        tensor["parameters"] = {"binary_data_size": len(self.binary)}
        parameters = {"binary_data_output": True}
        head = json.dumps({"inputs": [tensor], "parameters": parameters, "id": "1"}).encode()
        length = {"Inference-Header-Content-Length": str(len(head))}
        return self.request(status, head + self.binary, length)


def attacks(target: Target) -> dict[str, Hostile]:
    """What the door was built for: each of them ended or filled the server behind it."""
    request, asked = target.request, target.make_body
    terabyte = asked(shape=[1, 2**40])
    return {
        "a weight beyond all numbers": request(200, asked(), {"Accept-Encoding": "gzip;q=1e999"}),
        "a shape of a terabyte": request(400, terabyte),
        "a shape of 12 GB": request(400, asked(shape=[1, 3_000_000_000])),
        "its key in escapes": request(400, terabyte.replace(b'"shape"', b'"\\u0073hape"')),
        "600,000 chunks": request(400, b"x" * 600_000, chunk=1),
        "1 MB of brackets": request(400, b"[" * 1_000_000),
        "180 kB of brackets in data": request(400, asked(data=0)[:-4] + b"[" * 180_000),
        "brackets from a foreign page": request(
            403, b"[" * 200_000, {"Origin": "https://example.org", "Content-Type": "text/plain"}
        ),
        "a gigabyte in gzip": request(
            413, gzip_zeros(megabytes=1024), {"Content-Encoding": "gzip"}
        ),
        "chunks for the admin": Hostile(403, b"x" * 300_000, path="/v2/repository/index", chunk=1),
        "a gigabyte": request(413, bytes(1 << 20), {"Content-Length": str(2**30)}),
        "chunks without end": request(413, bytes(150_000_000), chunk=1 << 20),
        "a name that points here": request(403, asked(), {"Host": "rebound.example.org"}),
        **_too_many(target),
        **_forms(target.model),
    }


def _too_many(target: Target) -> dict[str, Hostile]:
    """More than a request may name, and names that Triton would repeat in an answer's header."""
    long, many = "x" * 66_000, 40_000
    tensor = {**target.tensor, "data": []}
    bodies: dict[str, dict[str, Any]] = {
        "40,000 inputs": {"inputs": [tensor] * many},
        "40,000 outputs": {"outputs": [{"name": "OUT"}] * many},
        "40,000 parameters": {"parameters": {f"p{number}": number for number in range(many)}},
        "an input's long name": {"inputs": [{**tensor, "name": long}]},
        "an output's long name": {"outputs": [{"name": long}]},
        "a parameter's long name": {"parameters": {long: 1}},
        "a parameter's long text": {"parameters": {"sequence_id": long}},
        "a long id": {"id": long},
        "a priority below 0": {"parameters": {"priority": -1}},
    }
    lists, texts = "[1]," * 1_990_000, '"",' * 2_600_000
    values = {
        "2,000,000 lists": f'{{"name":"IN","datatype":"INT8","shape":[1,1],"data":[{lists}[1]]}}',
        "2,600,000 texts": f'{{"name":"IN","datatype":"BYTES","shape":[1],"data":[{texts}""]}}',
    }
    path, top = f"/v2/models/{long[:30_000]}/infer", "00001999999999999999999"
    return {
        "a model's long name": Hostile(400, target.make_body(), path=path),
        "a long number": Hostile(400, b"x", path=f"/classify?model={target.model}&top={top}"),
        **{
            name: target.request(400, json.dumps({"inputs": [target.tensor], **body}).encode())
            for name, body in bodies.items()
        },
        **{
            name: target.request(413, f'{{"inputs":[{tensor}]}}'.encode())
            for name, tensor in values.items()
        },
    }


@cache
def _forms(model: str) -> dict[str, Hostile]:
    """Of which each byte wants to be looked at."""
    field = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n\r\n'
    file = field[:-6] + b'; filename="a"\r\n\r\n'
    bodies = {
        "fields": (413, field * 100_000),
        "fields of no headers": (413, b"--b\r\n\r\n\r\n" * 500_000),
        "a large field": (413, field[:-2] + bytes(5_000_000) + b"\r\n--b--"),
        "headers": (400, b"--b\r\n" + b"a: b\r\n" * 1_000_000),
        "one header": (400, b"--b\r\na: " + b'"\\' * 2_500_000),
        "boundaries in a file": (400, file + b"\r\n--bX" * 700_000),
        "no end": (400, file + b"\r\n--" * 1_000_000),
    }
    kind, path = {"Content-Type": "multipart/form-data; boundary=b"}, f"/classify?model={model}"
    packed = {
        "gzip": gzip.compress(field * 1_000_000),
        "deflate": zlib.compress(field * 1_000_000),
    }
    return {
        **{
            f"a form: {what}": Hostile(status, body, kind, path)
            for what, (status, body) in bodies.items()
        },
        **{
            f"a form in {coding}": Hostile(413, body, {**kind, "Content-Encoding": coding}, path)
            for coding, body in packed.items()
        },
    }


@cache
def gzip_zeros(megabytes: int) -> bytes:
    """One megabyte is packed, and its block repeated: a gigabyte would take seconds."""
    megabyte, crc = bytes(1 << 20), 0
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packing.compress(megabyte) + packing.flush(zlib.Z_FULL_FLUSH)
    for _ in range(megabytes):
        crc = zlib.crc32(megabyte, crc)
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return head + block * megabytes + packing.flush() + struct.pack("<II", crc, megabytes << 20)


def status_of(request: Hostile, port: int) -> int | None:
    """The status of the answer; None where the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            for piece in request.pieces():
                connection.sendall(piece)
        except OSError:
            pass  # closed already: the answer may lie ready all the same
        try:
            with connection.makefile("rb") as answer:
                return final_status(answer)
        except ConnectionError:
            return None


def final_status(answer: BinaryIO) -> int | None:
    """Not that of "100 Continue", which comes before the answer."""
    while found := re.match(rb"HTTP/1.1 (\d{3})", answer.readline()):
        if found[1] != b"100":
            return int(found[1])
        answer.readline()
    return None


# Mutants

# What a server of no fault of its own answers to anybody; None: the connection was closed.
HARMLESS = {None, 200, 400, 403, 404, 405, 408, 411, 413, 415, 417, 426, 431, 501}

NUMBERS = [
    "-1", "0", "1e999", "1e308", "-0.0", "18446744073709551616", "9223372036854775807", "1.5",
    "99999999999999999999999999", "null", "true", '"5"', "[]", "{}", "NaN", "Infinity", "0x10",
]  # fmt: skip
TOKENS = [
    '"inputs"', '"shape"', '"data"', '"name"', '"datatype"', '"parameters"', '"outputs"', "[", "]",
    "{", "}", ",", ":", '"\\u0000"', '"\\ud800"', '"' + "x" * 5000 + '"', "[" * 2000,
    '{"a":' * 2000, '"shared_memory_region"', '"binary_data_size"', '"classification"', '"FP64"',
    '"BYTES"', '"BF16"',
]  # fmt: skip
HEADERS = {
    "Accept-Encoding": ["gzip;q=-1", "deflate;q=;", "*;q=1", ",,,", "gzip" * 500, "br;q=0.5, x"],
    "Content-Encoding": ["br", "gzip, gzip", "identity", "GZIP", "\xff", "deflate"],
    "Content-Length": ["0", "5", "-1", "1e3", "99999999999999999999", "1, 2", ""],
    "Inference-Header-Content-Length": ["0", "1", "-5", "99999999999", "2e2", " 7", "\xd9"],
    "Transfer-Encoding": ["chunked", "gzip, chunked", "identity", "xchunked"],
    "Host": ["", "localhost:99999", "[::1]", "a b", "evil.example.org", "localhost@evil"],
    "Origin": ["null", "http://localhost", "https://[", "x" * 3000],
    "Expect": ["100-continue", "200-ok"],
    "X-Long": ["x" * 20_000, "x" * 100_000],
    "Content-Type": ["text/plain", "multipart/form-data", "application/json; charset=utf-7"],
}  # fmt: skip
PATHS = [
    "/v2/models//infer", "/v2/models/echo%2finfer", "/v2/models/echo/versions/-1/infer", "/%00",
    "/v2/models/../repository/index", "/v2/models/echo/versions/99999999999999999999/infer",
    "/v2/../",
    "/v2/models/" + "e" * 8000 + "/infer", "//v2", "/v2/models/echo/infer?" + "a=b&" * 2000, "*",
    "/v2/repository/index", "/v2/logging", "/internal/metrics", "/v2/models/echo\xff/infer",
]  # fmt: skip


def mutants(seeds: Sequence[Hostile], count: int, seed: int) -> Iterator[Hostile]:
    """The same ones for the same seed; the status of each means nothing."""
    chance = random.Random(seed)
    for _ in range(count):
        mutant = chance.choice(seeds)
        for _ in range(chance.randint(1, 4)):
            mutant = chance.choice(MUTATIONS)(mutant, chance)
        yield mutant


def _change(request: Hostile, **changes: object) -> Hostile:
    return Hostile(**{**vars(request), **changes})


def _bytes(request: Hostile, chance: random.Random) -> Hostile:
    body = bytearray(request.body or b"{}")
    for _ in range(chance.randint(1, 8)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return _change(request, body=bytes(body))


def _cut(request: Hostile, chance: random.Random) -> Hostile:
    return _change(request, body=request.body[: chance.randint(0, len(request.body))])


def _double(request: Hostile, chance: random.Random) -> Hostile:
    start, end = sorted(chance.randint(0, len(request.body)) for _ in range(2))
    piece = request.body[start:end] * chance.choice([2, 3, 50])
    return _change(request, body=request.body[:start] + piece + request.body[end:])


def _number(request: Hostile, chance: random.Random) -> Hostile:
    return _replace(request, chance, rb"-?\d+", chance.choice(NUMBERS))


def _token(request: Hostile, chance: random.Random) -> Hostile:
    return _replace(request, chance, rb'"\w*"|[\[\]{}:,]', chance.choice(TOKENS))


def _replace(request: Hostile, chance: random.Random, what: bytes, by: str) -> Hostile:
    found = list(re.finditer(what, request.body))
    if not found:
        return request
    place = chance.choice(found)
    body = request.body[: place.start()] + by.encode() + request.body[place.end() :]
    return _change(request, body=body)


def _header(request: Hostile, chance: random.Random) -> Hostile:
    name = chance.choice(list(HEADERS))
    return _change(request, headers={**request.headers, name: chance.choice(HEADERS[name])})


def _path(request: Hostile, chance: random.Random) -> Hostile:
    return _change(request, path=chance.choice(PATHS))


def _method(request: Hostile, chance: random.Random) -> Hostile:
    return _change(request, method=chance.choice(["GET", "PUT", "HEAD", "OPTIONS", "CONNECT", "X"]))


def _chunks(request: Hostile, chance: random.Random) -> Hostile:
    return _change(request, chunk=chance.choice([1, 3, 1000]))


MUTATIONS = [
    *[_bytes, _cut, _double, _number, _number, _number, _token, _token],
    *[_header, _path, _method, _chunks],
]
