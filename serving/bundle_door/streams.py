"""gRPC streams: each message is passed on unchanged, once its size is checked.

Envoy can only check complete requests, and a stream is never complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from bundle_door.limits import Limits
from bundle_door.triton import SERVICE

METHOD = "ModelStreamInfer"


def server(channel: grpc.aio.Channel, socket: Path, limits: Limits) -> grpc.aio.Server:
    """A gRPC server on `socket` that forwards streams to `channel`."""
    call = channel.stream_stream(SERVICE + METHOD)

    async def passed_on(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        try:
            async for answer in call(messages, timeout=context.time_remaining()):
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")

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
