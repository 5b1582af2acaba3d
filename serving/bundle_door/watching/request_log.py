"""The request log: one line a request, as text or as JSON; never a picture, a text or a key.

    2026-11-20T12:27:37.262Z door: id=7f… protocol=http … status=200 ms=31.2

Over HTTP the service writes it. gRPC does not pass the service, nor does what Envoy refuses by
itself: of these Envoy writes its own access log to a pipe, from which the same lines are made.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from bundle_door.front.envoy_process import Line
from bundle_door.requests import SANE_ID, Note, trace_id
from bundle_door.settings import JSON
from bundle_serving.process.server_log import escape_text, stamp

# What stands in a line of text as it is; all else in quotes.
PLAIN = re.compile(r'[^\s"\\=]+')
LONGEST_PATH = 200
# What a client that hung up is counted as, by nginx's convention.
HUNG_UP = 499
# Asked again and again, by load balancers and by the page that is open.
NOT_LOGGED = ("/v2/health/", "/internal/", "/page/")
NOT_LOGGED_METHODS = ("/grpc.health.v1.Health/",)

Fields = dict[str, Any]


class RequestLog:
    def __init__(self, form: str, write: Callable[[bytes], object] | None = None) -> None:
        self._as = as_json if form == JSON else as_text
        self._write = write or write_line

    def log_answer(
        self,
        method: str,
        path: str,
        note: Note,
        status: int,
        nanoseconds: int,
        bytes_out: int,
    ) -> None:
        """Over HTTP."""
        if note.is_own or path.startswith(NOT_LOGGED):
            return
        self._line(
            time.time(),
            {
                "id": note.id,
                "client": note.client,
                "protocol": "http",
                "method": method,
                "path": path[:LONGEST_PATH],
                "pipeline": note.pipeline,
                "version": note.version,
                "status": status,
                "ms": round(nanoseconds / 1e6, 1),
                "received_ms": note.received_ms,
                "waited_ms": note.waited_ms,
                "steps": note.steps,
                "bytes_in": note.bytes_in,
                "bytes_out": bytes_out,
                "trace": note.trace,
            },
        )

    def of_envoy(self, line: Line) -> None:
        path = line.path or ""
        grpc = line.port == "grpc"
        # What is given up over HTTP, the HTTP service tells of.
        if path.startswith(NOT_LOGGED_METHODS) or (line.is_given_up and not grpc):
            return
        answered = line.grpc_status if grpc and line.grpc_status else line.status
        self._line(
            float(line.began) + line.seconds,
            {
                "id": line.id if SANE_ID.fullmatch(line.id or "") else "",
                "client": line.client or line.hurried,
                "protocol": "grpc" if grpc else "http",
                "method": line.method,
                "path": path[:LONGEST_PATH],
                "pipeline": line.answered_by,
                "version": line.candidate or line.version,
                "status": HUNG_UP if line.is_given_up else answered,
                "ms": round(line.seconds * 1000, 1),
                "bytes_in": line.bytes_in,
                "bytes_out": line.bytes_out,
                "trace": trace_id(line.traceparent or ""),
                "refused": line.by_envoy,
            },
        )

    def _line(self, seconds: float, fields: Fields) -> None:
        known = {name: value for name, value in fields.items() if value or value == 0}
        self._write(self._as(stamp(seconds), known))


def as_json(when: str, fields: Fields) -> bytes:
    text = msgspec.json.encode({"time": when, "source": "door", **fields}).decode()
    return f"{escape_text(text)}\n".encode()


def as_text(when: str, fields: Fields) -> bytes:
    words = []
    for name, value in fields.items():
        if isinstance(value, dict):
            words += [f"{each}_ms={show_value(ms)}" for each, ms in value.items()]
        else:
            words.append(f"{name}={show_value(value)}")
    return f"{when} door: {' '.join(words)}\n".encode()


def show_value(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    if PLAIN.fullmatch(value) and value.isprintable():
        return value
    return escape_text(msgspec.json.encode(value).decode())


def write_line(line: bytes) -> None:
    """At once, and in one piece: other processes write to the same log."""
    with suppress(OSError):
        os.write(1, line)
