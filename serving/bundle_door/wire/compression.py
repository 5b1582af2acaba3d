"""Compressed bodies: requests with a size limit, answers as the client prefers."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

from bundle_door.answers import Refused
from bundle_door.limits import CLEAR_ANYWAY, MOST_RATIO, too_large

# zlib's window bits: with gzip's header, with its own.
WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
# At most this much at a time: memory is bounded by the limit, and others are served meanwhile.
STEP = 1 << 20

CODING = re.compile(r"([\w!#$%&'*+.^`|~-]+)(?:\s*;\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?))?", re.A)


def decompress(chunks: Sequence[bytes], encoding: str, limit: int) -> Iterator[bytes]:
    """The decompressed body in steps; refused as soon as it exceeds `limit`, or what its compressed
    size allows."""
    if encoding not in WINDOWS:
        raise Refused(
            415,
            f"Content-Encoding: {encoding} is not supported; send gzip, deflate, or neither",
            {"accept-encoding": "gzip, deflate"},
        )
    stream = zlib.decompressobj(WINDOWS[encoding])
    allowed = max(CLEAR_ANYWAY, MOST_RATIO * sum(map(len, chunks)))
    size = 0
    for chunk in chunks:
        for clear in _steps(stream, chunk, encoding):
            if (size := size + len(clear)) > limit:
                raise too_large(limit)
            if size > allowed:
                raise Refused(
                    413,
                    f"the {encoding} body holds more than {MOST_RATIO} times its own size; send it"
                    " as it is",
                )
            yield clear
    if not stream.eof:
        raise Refused(400, f"the {encoding} body is truncated")


def _steps(stream: zlib._Decompress, chunk: bytes, encoding: str) -> Iterator[bytes]:
    """Decompresses one chunk, at most STEP bytes at a time."""
    clear = b""
    # A full step may leave output pending although the chunk is used up.
    while chunk or (len(clear) == STEP and not stream.eof):
        if stream.eof:
            raise Refused(400, f"data follows the end of the {encoding} body")
        try:
            clear = stream.decompress(chunk, STEP)
        except zlib.error:
            raise Refused(400, f"the body is not valid {encoding}") from None
        yield clear
        chunk = stream.unused_data or stream.unconsumed_tail


def may_be_compressed(path: str) -> bool:
    """Of Triton's own paths the answers to inferences alone, as Triton does: tritonclient's client
    for asyncio wants all of them compressed, and can read no others."""
    return not path.startswith("/v2") or path.endswith("/infer")


def choose_encoding(accepted: str) -> str | None:
    """The encoding of an answer, by the header Accept-Encoding; None: uncompressed."""
    if not accepted:
        return None
    weights: dict[str, float] = {}
    for part in accepted.split(","):
        if not (part := part.strip()):
            continue
        if not (coding := CODING.fullmatch(part)):
            raise Refused(400, f"Accept-Encoding: {part[:100]!r} is not an encoding with a weight")
        weights[coding[1].lower()] = float(coding[2] or 1)
    known = [name for name in WINDOWS if weights.get(name)]
    return max(known, key=lambda name: weights[name], default=None)


def compress(body: bytes, encoding: str) -> Iterator[bytes]:
    """In steps."""
    stream = zlib.compressobj(wbits=WINDOWS[encoding])
    for start in range(0, len(body), STEP):
        yield stream.compress(body[start : start + STEP])
    yield stream.flush()
