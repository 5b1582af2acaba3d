"""Single messages over gRPC, while a model has a candidate, or requests are kept. Else they go from
Envoy to Triton, and do not come here."""

import time
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from bundle_door.answers import Answer, Refused
from bundle_door.front.messages import INFER
from bundle_door.http_process import HttpProcess
from bundle_door.paths.candidates import Sharing
from bundle_door.requests import ANSWERED_BY, Request, note_of
from bundle_door.streams import code_of
from bundle_door.triton import status_of
from bundle_door.watching.observed import GRPC
from bundle_door.wire.calls import CallFailed
from bundle_door.wire.over_http import GRPC_TYPE
from bundle_serving.process.faults import forget_frames
from bundle_serving.protocol.kserve import pb


class Failed(Refused):
    """By Triton, with gRPC's own code."""

    def __init__(self, failed: CallFailed) -> None:
        super().__init__(status_of(failed.code), str(failed))
        self.code = failed.code


class Singles:
    def __init__(self, process: HttpProcess, keys: bool) -> None:
        self._triton, self._load = process.triton, process.load
        self._served, self._shadowing = process.served, process.shadowing
        self._keys, self._own_id = keys, process.own_id
        self._share = Sharing(self._ask, process.observed, self._served, self._shadowing, GRPC)
        self._handle = process.capturing.keep(self._answer)

    async def answer(
        self, message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        """Envoy has bounded and checked it, and logs it; it asks again where that may help."""
        arrived = time.monotonic_ns()
        headers: Any = dict(context.invocation_metadata() or ())
        note = note_of(headers, self._keys, self._own_id)
        request = Request("POST", INFER, headers, {}, [message], arrived, time.monotonic_ns(), note)
        named = name_asked(message)
        del message
        answer = await self._admit(request, named)
        del request
        if isinstance(answer, Refused):
            code = answer.code if isinstance(answer, Failed) else code_of(answer)
            await context.abort(code, str(answer))
            raise answer  # which never comes to it
        if version := answer.headers.get(ANSWERED_BY):
            await context.send_initial_metadata(((ANSWERED_BY, version),))
        return answer.body

    async def _admit(self, request: Request, named: Mapping[str, str]) -> Answer | Refused:
        """A refusal comes without its frames, which have the message: gRPC keeps the last."""
        self._shadowing.singles += 1
        try:
            with self._load.request() as share:
                share.take(request.size)
                return await self._handle(request, named)
        except Refused as refused:
            forget_frames(refused)
            return refused
        finally:
            self._shadowing.singles -= 1

    async def _answer(self, request: Request, named: Mapping[str, str]) -> Answer:
        answer, note = await self._share(request, named), request.note
        note.pipeline, version = self._served.series(note.answered_by or named["model"])
        note.version = named["version"] or version
        return answer

    async def _ask(self, request: Request, named: Mapping[str, str]) -> Answer:
        message = request.body
        if named["model"] != named["asked"]:
            asked = pb.ModelInferRequest.FromString(message)
            asked.model_name = named["model"]
            message = asked.SerializeToString()
            await self._triton.refuse_classes_of(message)  # Envoy asked of the live version's
        try:
            body = await self._triton.infer_message(message, request.onwards)
        except CallFailed as failed:
            raise Failed(failed) from None
        return Answer(body, headers={"content-type": GRPC_TYPE})


def name_asked(message: bytes) -> dict[str, str]:
    """A model and a version; of what cannot be read, which is Triton's to refuse, none."""
    try:
        asked = pb.ModelInferRequest.FromString(message)
    except DecodeError:
        asked = pb.ModelInferRequest()
    name = asked.model_name
    return {"asked": name, "model": name, "version": asked.model_version}
