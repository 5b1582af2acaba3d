"""The HTTP service behind Envoy, an ASGI application: reads, checks and answers requests."""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

from bundle_door.answers import Answer, Refused
from bundle_door.compression import compressed, decompressed, preferred
from bundle_door.inference import HEADER_LENGTH
from bundle_door.limits import Load, Share, too_large
from bundle_door.note import REQUEST_ID, Note, note_of
from bundle_door.request_log import HUNG_UP
from bundle_door.requests import Request
from bundle_door.routes import Route, found
from bundle_serving.guard import HEADER as ADMIN_KEY
from bundle_serving.log_lines import log

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# Takes each answer's request, its note, and status, bytes and duration in ns of the answer.
Observe = Callable[[Scope, Mapping[str, str], Note, int, int, int], None]


# Of the header Sec-Fetch-Site, which browsers send: another port of this host is one, too.
FOREIGN = ("cross-site", "same-site")


def unobserved(
    scope: Scope, headers: Mapping[str, str], note: Note, status: int, size: int, duration: int
) -> None:
    pass


class HungUp(Exception):
    """The client has disconnected."""


class Service:
    def __init__(
        self,
        routes: list[Route],
        load: Load,
        admin_key: str | None,
        origins: Collection[str] = (),
        observe: Observe = unobserved,
        keys: bool = False,
    ) -> None:
        self._routes = routes
        self._limits = load.limits
        self._admin_key = admin_key
        self._origins = origins
        self._observe = observe
        self._keys = keys
        self.load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        arrived = time.monotonic_ns()
        note = note_of(headers, self._keys)
        try:
            answer = await self._answer(scope, headers, receive, arrived, note)
        except HungUp:
            self._observe(scope, headers, note, HUNG_UP, 0, time.monotonic_ns() - arrived)
            return
        except Refused as refused:
            answer = refused.answer()
        except Exception:
            log("door", f"an internal error in the request {note.id}")
            traceback.print_exc()
            answer = Refused(500, "internal error in the door; see its log (make logs)").answer()
        size, duration = len(answer.body), time.monotonic_ns() - arrived
        self._observe(scope, headers, note, answer.status, size, duration)
        await sent(answer, {REQUEST_ID: note.id, **self._cors(headers)}, send)

    async def _answer(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        arrived: int,
        note: Note,
    ) -> Answer:
        check_origin(headers, self._origins)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            return Answer(status=204)
        route, handler, named = found(self._routes, scope["method"], scope["path"])
        if route.admin:
            self._check_admin(headers)
        encoding = preferred(headers.get("accept-encoding", ""))
        with self.load.request(always=route.light) as share:
            chunks = [] if route.light else await self._body(headers, receive, share, note)
            request = Request(
                scope["method"],
                scope["path"],
                headers,
                dict(parse_qsl(scope["query_string"].decode("latin-1"))),
                chunks,
                arrived,
                time.monotonic_ns(),
                note,
            )
            answer = await unless_hung_up(handler(request, named), receive)
        return encoded(answer, encoding) if encoding else answer

    def _cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """For browsers: pages from these origins may send requests and read the answers."""
        origin = headers.get("origin", "")
        if origin not in self._origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-expose-headers": f"{HEADER_LENGTH}, {REQUEST_ID}",
            "vary": "Origin",
        }

    def _check_admin(self, headers: Mapping[str, str]) -> None:
        given, key = headers.get(ADMIN_KEY, "").encode(), self._admin_key
        if key is None or not hmac.compare_digest(given, key.encode()):
            raise Refused(403, f"This API is restricted, expecting header '{ADMIN_KEY}'")

    async def _body(
        self, headers: Mapping[str, str], receive: Receive, share: Share, note: Note
    ) -> list[bytes]:
        limit = self._limits.body_bytes
        if int(headers.get("content-length", 0)) > limit:
            raise too_large(limit)
        chunks = await received(receive, limit, share)
        note.bytes_in = sum(map(len, chunks))
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity"):
            return chunks
        clear = []
        for chunk in decompressed(chunks, encoding, limit):
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


async def received(receive: Receive, limit: int, share: Share) -> list[bytes]:
    """The body as received; refused as soon as it is too large."""
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise HungUp
        if chunk := event.get("body"):
            share.take(len(chunk))
            chunks.append(chunk)
            if (size := size + len(chunk)) > limit:
                raise too_large(limit)
        more = event.get("more_body", False)
    return chunks


async def unless_hung_up(answer: Awaitable[Answer], receive: Receive) -> Answer:
    """The answer, cancelled if the client disconnects: Triton is then told to stop too."""
    working = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        # Else a refusal and this frame refer to each other, and keep the body until they are found.
        del working, gone


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encoded(answer: Answer, encoding: str) -> Answer:
    if not answer.body:
        return answer
    headers = {**answer.headers, "content-encoding": encoding}
    return Answer(compressed(answer.body, encoding), answer.status, headers)


async def sent(answer: Answer, more: Mapping[str, str], send: Send) -> None:
    named = {**answer.headers, **more, "content-length": str(len(answer.body))}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
