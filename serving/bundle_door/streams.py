"""gRPC streams: each message is passed on unchanged, once its size is checked, and the key again.

Envoy can only check complete requests, and a stream is never complete; the key it checks when a
stream begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from bundle_door.answers import Refused
from bundle_door.keys import Keys
from bundle_door.limits import Limits
from bundle_door.triton import SERVICE

METHOD = "ModelStreamInfer"
# By which a client wants an error's status, which ends the stream, instead of its text alone.
WITH_STATUS = "triton_grpc_error"


class Admitted:
    """The messages of a stream, until its key is refused."""

    def __init__(
        self, messages: AsyncIterator[bytes], keys: Keys | None, authorization: str
    ) -> None:
        self._messages, self._keys, self._authorization = messages, keys, authorization
        self.refused: Refused | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begins = True
        async for message in self._messages:
            try:
                if self._keys and not begins:
                    await self._keys.admit(self._authorization)
            except Refused as refused:
                self.refused = refused
                return
            begins = False
            yield message


def server(
    channel: grpc.aio.Channel, socket: Path, limits: Limits, keys: Keys | None
) -> grpc.aio.Server:
    """A gRPC server on `socket` that forwards streams to `channel`."""
    call = channel.stream_stream(SERVICE + METHOD)

    async def passed_on(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        sent = dict(context.invocation_metadata() or ())
        onwards = [(WITH_STATUS, sent[WITH_STATUS])] if WITH_STATUS in sent else None
        admitted = Admitted(messages, keys, sent.get("authorization", ""))
        left = context.time_remaining()
        try:
            async for answer in call(aiter(admitted), timeout=left, metadata=onwards):
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        if admitted.refused:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(admitted.refused))

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
