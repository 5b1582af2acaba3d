"""gRPC streams: each message is passed on unchanged, once its size and what it asks are checked,
and the key again.

Envoy can only check complete requests, and a stream is never complete; the key it checks when a
stream begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from bundle_door import asked
from bundle_door.answers import Refused
from bundle_door.charges import Charges
from bundle_door.keys import Keys
from bundle_door.limits import Limits
from bundle_door.triton import OF_SEVERAL, SERVICE
from bundle_serving.kserve import pb

METHOD = "ModelStreamInfer"
# By which a client wants an error's status, which ends the stream, instead of its text alone.
WITH_STATUS = "triton_grpc_error"


# What a refused message or key ends its stream with.
CODES = {400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED}


class Admitted:
    """The messages of a stream, until one or its key is refused."""

    def __init__(
        self,
        messages: AsyncIterator[bytes],
        keys: Keys | None,
        charges: Charges | None,
        authorization: str,
    ) -> None:
        self._messages, self._keys, self._authorization = messages, keys, authorization
        self._charges = charges
        self.refused: Refused | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begins = True
        async for message in self._messages:
            try:
                asked.check(message)
                if self._keys and not begins:
                    await self._keys.admit(self._authorization)
                if self._charges:
                    self._charges.of_message(self._authorization, message)
            except Refused as refused:
                self.refused = refused
                return
            begins = False
            yield message


class WithStatus:
    """Asks about each message by itself, for an error's status. Triton has such streams too, but
    before 2.68 the first errors of them end it (a use after free, in its pull request 8708)."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._ask = channel.unary_unary(
            f"{SERVICE}ModelInfer", response_deserializer=pb.ModelInferResponse.FromString
        )
        self._ask_for_several = channel.stream_stream(
            SERVICE + METHOD, response_deserializer=pb.ModelStreamInferResponse.FromString
        )

    async def __call__(
        self, messages: AsyncIterator[bytes], timeout: float | None
    ) -> AsyncIterator[bytes]:
        async for message in messages:
            try:
                answer = await self._ask(message, timeout=timeout)
                yield pb.ModelStreamInferResponse(infer_response=answer).SerializeToString()
            except grpc.aio.AioRpcError as error:
                if OF_SEVERAL not in (error.details() or ""):
                    raise
                async for one in self._ask_for_several(iter([message]), timeout=timeout):
                    if one.error_message:
                        raise Refused(500, one.error_message) from None
                    yield one.SerializeToString()


def server(
    channel: grpc.aio.Channel,
    socket: Path,
    limits: Limits,
    keys: Keys | None,
    charges: Charges | None,
) -> grpc.aio.Server:
    """A gRPC server on `socket` that forwards streams to `channel`."""
    plainly, each = channel.stream_stream(SERVICE + METHOD), WithStatus(channel)

    async def passed_on(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        sent = dict(context.invocation_metadata() or ())
        admitted = Admitted(messages, keys, charges, sent.get("authorization", ""))
        call = each if sent.get(WITH_STATUS) == "true" else plainly
        try:
            async for answer in call(aiter(admitted), timeout=context.time_remaining()):
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        except Refused as refused:
            await context.abort(grpc.StatusCode.INTERNAL, str(refused))
        if admitted.refused:
            await context.abort(CODES[admitted.refused.status], str(admitted.refused))

    made = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_send_message_length", -1),
        ],
        maximum_concurrent_rpcs=limits.in_flight,
    )
    handlers = {METHOD: grpc.stream_stream_rpc_method_handler(passed_on)}
    made.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers),)
    )
    made.add_insecure_port(f"unix:{socket}")
    return made
