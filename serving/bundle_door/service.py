"""The HTTP service behind Envoy: reads, checks and answers requests; their bodies, and the answers,
may be compressed."""

import asyncio
import hmac
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from bundle_door.answers import Answer, Refused
from bundle_door.limits import CLEAR_ANYWAY, MOST_RATIO, Load, Share, too_large
from bundle_door.paths.routes import Route, find_route
from bundle_door.requests import (
    ANSWERED_BY,
    REQUEST_ID,
    Note,
    Request,
    address_of,
    note_of,
)
from bundle_door.watching.request_log import HUNG_UP
from bundle_door.wire.http1 import Body, Incoming
from bundle_serving.process.guard import HEADER as ADMIN_KEY
from bundle_serving.process.server_log import log, log_traceback
from bundle_serving.protocol.gists import HEADER_LENGTH

# Takes each request, its note, and status, bytes and duration in ns of the answer.
Observe = Callable[[Incoming, Note, int, int, int], None]


# Of an answer: what Envoy takes, whether its client reads it or not.
READ_AT_ONCE = 64 << 10
# What of a request makes the answer, besides its address: a cache must not give it to others.
VARY = "Accept-Encoding, Origin"
# Of the header Sec-Fetch-Site, which browsers send: another port of this host is one, too.
FOREIGN = ("cross-site", "same-site")

# zlib's window bits: with gzip's header, with its own.
WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
# At most this much at a time: memory is bounded by the limit, and others are served meanwhile.
STEP = 1 << 20

CODING = re.compile(r"([^\s;]+)(?:\s*;\s*q=([01]?\.\d+|[01]\.?))?", re.A | re.I)


@dataclass
class Service:
    routes: list[Route]
    load: Load
    admin_key: str | None
    origins: Collection[str]
    observe: Observe
    keys: bool = False
    own_id: str = ""

    async def __call__(self, incoming: Incoming) -> Answer:
        """Cancelled, when the client hangs up, it cancels what it has asked Triton."""
        arrived = time.monotonic_ns()
        note = note_of(incoming.headers, self.keys, self.own_id)
        try:
            answer = await self._answer(incoming, arrived, note)
        except asyncio.CancelledError:
            self.observe(incoming, note, HUNG_UP, 0, time.monotonic_ns() - arrived)
            raise
        except Refused as refused:
            answer = refused.answer()
        except Exception as fault:
            log("door", f"an internal error in the request {note.id}")
            log_traceback(fault)
            answer = Refused(500, "internal error in the door; see its log (make logs)").answer()
        size, duration = len(answer.body), time.monotonic_ns() - arrived
        self.observe(incoming, note, answer.status, size, duration)
        if size > READ_AT_ONCE:
            client = note.client or address_of(incoming.headers)
            held = self.load.hold_answer(size, client, incoming.hang_up)
            incoming.until_sent.enter_context(held)
        more = {REQUEST_ID: note.id, "vary": VARY, **self._cors(incoming.headers)}
        return Answer(answer.body, answer.status, {**answer.headers, **more})

    async def _answer(self, incoming: Incoming, arrived: int, note: Note) -> Answer:
        method, headers = incoming.method, incoming.headers
        check_origin(headers, self.origins)
        if method == "OPTIONS" and "access-control-request-method" in headers:
            return Answer(status=204)
        route, handler, named = find_route(self.routes, method, incoming.path)
        if route.admin:
            self._check_admin(headers)
        encoding = choose_encoding(headers.get("accept-encoding", ""))
        with self.load.request(always=route.light) as share:
            chunks = [] if route.light else await self._body(incoming, share, note)
            given = parse_qsl(incoming.query, keep_blank_values=True) if incoming.query else []
            names = Counter(name for name, _ in given)
            request = Request(
                method,
                incoming.path,
                headers,
                dict(given),
                chunks,
                arrived,
                time.monotonic_ns(),
                note,
                next((name for name, count in names.items() if count > 1), ""),
            )
            if route.asks:
                named["model"] = request.query.get("model", route.asks)
            answer = await handler(request, named)
        if encoding and may_be_compressed(incoming.path):
            return await encode_answer(answer, encoding)
        return answer

    def _cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """For browsers: pages from these origins may send requests and read the answers."""
        origin = headers.get("origin", "")
        if origin not in self.origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-expose-headers": f"{HEADER_LENGTH}, {REQUEST_ID}, {ANSWERED_BY}",
        }

    def _check_admin(self, headers: Mapping[str, str]) -> None:
        given, key = headers.get(ADMIN_KEY, "").encode(), self.admin_key
        if key is None or not hmac.compare_digest(given, key.encode()):
            raise Refused(403, f"This API is restricted, expecting header '{ADMIN_KEY}'")

    async def _body(self, incoming: Incoming, share: Share, note: Note) -> list[bytes]:
        headers, limit = incoming.headers, self.load.limits.body_bytes
        if int(headers.get("content-length", 0)) > limit:
            raise too_large(limit)
        # By whose key it is, else by its address.
        share.arrive(note.client or address_of(headers), incoming.body.refuse)
        chunks = await read_body(incoming.body, limit, share)
        share.complete()
        note.bytes_in = sum(map(len, chunks))
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity"):
            return chunks
        clear = []
        for chunk in decompress(chunks, encoding, limit):
            share.take(len(chunk))
            clear.append(chunk)
            # Takes a second for a large body, while others are served too.
            await asyncio.sleep(0)
        return clear


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """A page from another server must not reach this one through a user's browser."""
    origin = headers.get("origin")
    if origin is None:
        # What a page shows or runs comes without an origin, and to follow a link is no harm.
        if headers.get("sec-fetch-site") in FOREIGN and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "pages of other origins are not allowed; add theirs to CORS_ORIGINS")
        return
    if origin in allowed:
        return
    if origin.partition("://")[2] != headers.get("host"):
        raise Refused(
            403, f"pages from {origin[:100]} are not allowed; add the origin to CORS_ORIGINS"
        )


async def read_body(body: Body, limit: int, share: Share) -> list[bytes]:
    """The body as received; refused as soon as it is too large."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await body.read():
        share.take(len(chunk))
        chunks.append(chunk)
        if (size := size + len(chunk)) > limit:
            raise too_large(limit)
    return chunks


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


def _steps(stream: "zlib._Decompress", chunk: bytes, encoding: str) -> Iterator[bytes]:
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
    """The encoding of an answer, by the header Accept-Encoding, of which it passes over what is
    malformed; None: uncompressed."""
    weights: dict[str, float] = {}
    for part in accepted.split(","):
        if coding := CODING.fullmatch(part.strip()):
            weights[coding[1].lower()] = float(coding[2] or 1)
    known = [name for name in weights if weights[name] and name in (*WINDOWS, "identity")]
    best = max(known, key=lambda name: weights[name], default="identity")
    return None if best == "identity" else best


async def encode_answer(answer: Answer, encoding: str) -> Answer:
    if not answer.body:
        return answer
    stream, pieces = zlib.compressobj(wbits=WINDOWS[encoding]), []
    for start in range(0, len(answer.body), STEP):
        pieces.append(stream.compress(answer.body[start : start + STEP]))
        await asyncio.sleep(0)
    pieces.append(stream.flush())
    headers = {**answer.headers, "content-encoding": encoding}
    return Answer(b"".join(pieces), answer.status, headers)
