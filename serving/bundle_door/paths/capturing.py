"""Keeps some of the requests that were answered, after their answers have gone out."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec

from bundle_door.answers import JSON, Answer, Refused, as_json
from bundle_door.front.messages import INFER
from bundle_door.paths.candidates import Behind, draw, is_good
from bundle_door.paths.measured import Observer
from bundle_door.paths.plain import MASK
from bundle_door.paths.routes import Handler, Route, for_the_admin
from bundle_door.requests import Request
from bundle_door.settings import NOTHING, Keep
from bundle_door.watching.captures import Captures, Record
from bundle_door.watching.steps import TIMINGS
from bundle_door.wire.inference import header_length
from bundle_door.wire.kserve import decode
from bundle_door.wire.over_http import translate_answer, translate_question
from bundle_serving.process.server_log import log
from bundle_serving.protocol.gists import HEADER_LENGTH, read_labels

KEPT, LEFT_OUT, FAILED, MADE_ROOM = "kept", "left out", "failed", "made room"
# What of a request's query and headers makes the answer, and tells nothing of who asks.
QUERY, HEADER = ("top", "model", MASK, TIMINGS), "content-type"
MOST_HEAD, MOST_ANSWER = 1_000_000, 10_000
KSERVE = "/v2/"
TELL_S = 60.0  # at most so often, why nothing can be kept
OLD_S = 3600.0  # how often it looks for what is too old


class Capturing:
    def __init__(self, keep: Keep, captures: Captures, observed: Observer) -> None:
        self._keep, self._captures, self._observed = keep, captures, observed
        self._behind, self._turn = Behind(), asyncio.Lock()
        self._told = -TELL_S

    @property
    def keeps(self) -> bool:
        """Any; else it only gives what is there."""
        return self._keep != NOTHING

    def keep(self, handler: Handler) -> Handler:
        if not self.keeps:
            return handler

        async def capturing(request: Request, named: Mapping[str, str]) -> Answer:
            answer = await handler(request, named)
            if not request.is_own and is_good(answer):
                if self._is_wanted(request, answer):
                    self._offer(request, answer)
                elif self._keep.differs and request.note.is_copied:
                    request.note.when_differs = lambda: self._offer(request, answer)
            return answer

        return capturing

    def _is_wanted(self, request: Request, answer: Answer) -> bool:
        keep, note = self._keep, request.note
        if draw(f"keep {note.id}") < keep.percent or note.client in keep.keys:
            return True
        if not (keep.under or keep.classes):  # every answer comes here, and to read it takes time
            return False
        told = translate_answer(answer)
        labels = read_labels(told.body, told.headers)
        return bool(labels) and (0 < labels[0][1] < keep.under or keep.has_class(labels[0][0]))

    def _offer(self, request: Request, given: Answer) -> None:
        answer = translate_answer(given)
        seconds = (time.monotonic_ns() - request.arrived) / 1e9
        if request.path == INFER:  # over gRPC
            if not (question := translate_question(request.body)):
                self._observed.note_capture(LEFT_OUT)
                return
            path, head, tensors = question
            headers = {HEADER_LENGTH: str(len(head))}
            request = replace(request, path=path, headers=headers, chunks=[head, *tensors])
        length = 0
        if request.path.startswith(KSERVE):
            length = header_length(request.headers.get(HEADER_LENGTH), request.size) or 0
        if length > MOST_HEAD:
            self._observed.note_capture(LEFT_OUT)
            return
        query = urlencode({name: request.query[name] for name in QUERY if name in request.query})
        record: Record = {
            "id": request.note.id,
            "time": datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(),
            "pipeline": request.note.pipeline,
            "version": request.note.version,
            "path": f"{request.path}?{query}" if query else request.path,
            "type": request.headers.get(HEADER, ""),
            "ms": round(1000 * seconds, 1),
            "labels": read_labels(answer.body, answer.headers),
        }
        answered = int(answer.headers.get(HEADER_LENGTH, len(answer.body)))
        if answered <= MOST_ANSWER:  # its JSON, without tensors
            record["answer"] = answer.body[:answered].decode(errors="replace")
        if not self._behind.begin(self._write(record, request, length), request.size):
            self._observed.note_capture(LEFT_OUT)

    async def _write(self, record: Record, request: Request, length: int) -> None:
        """`length`: of the JSON before what is sent."""
        body = request.body
        record["head"] = body[:length].decode(errors="replace")
        async with self._turn:
            try:
                gone = await asyncio.to_thread(self._captures.write, record, body[length:])
            except OSError as fault:
                self._observed.note_capture(FAILED)
                if time.monotonic() > self._told + TELL_S:
                    self._told = time.monotonic()
                    log("door", f"requests cannot be kept: {fault}")
            else:
                for outcome in (KEPT, *[MADE_ROOM] * gone):
                    self._observed.note_capture(outcome)

    def routes(self) -> list[Route]:
        """For `make captured`."""

        async def read(request: Request, named: Mapping[str, str]) -> Answer:
            # Line by line: many at once would take much memory, and hold all others up.
            lines = map(msgspec.json.encode, self._captures.read())
            body = await asyncio.to_thread(lambda: b"[%b]" % b",".join(lines))
            return Answer(body, headers=JSON)

        async def open_file(request: Request, named: Mapping[str, str]) -> Answer:
            try:
                return Answer(await asyncio.to_thread(self._captures.open_file, named["file"]))
            except FileNotFoundError:
                raise Refused(404, "Not Found") from None

        async def forget(request: Request, named: Mapping[str, str]) -> Answer:
            id = request.query.get("id", "")
            return await remove(id, lambda: self._captures.forget(id))

        async def leave(request: Request, named: Mapping[str, str]) -> Answer:
            known = {*decode(request.body, list[tuple[str, str]], "the list of ids and times")}
            return await remove("what was taken", lambda: self._captures.leave(known))

        async def remove(what: str, work: Callable[[], int]) -> Answer:
            try:
                return as_json(await asyncio.to_thread(work))
            except OSError as fault:
                raise Refused(507, f"{what} cannot be removed: {fault}") from None

        return [
            for_the_admin("/v2/captures", GET=read, DELETE=forget, POST=leave),
            for_the_admin("/v2/captures/(?P<file>.+)", GET=open_file),
        ]

    async def remove_old(self) -> None:
        while True:
            with suppress(OSError):  # which is told where something is to be written
                await asyncio.to_thread(self._captures.remove_old)
            await asyncio.sleep(OLD_S)
