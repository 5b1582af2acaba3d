"""KServe's gRPC from tritonclient, without the rest of tritonclient (messages.py).

triton = kserve.stub(grpc.aio.insecure_channel(target))
await triton.ServerReady(kserve.pb.ServerReadyRequest())
"""

from __future__ import annotations

from typing import Any

from bundle_serving.protocol.messages import pb, without_its_init

with without_its_init():
    from tritonclient.grpc import service_pb2_grpc


def stub(channel: Any) -> Any:
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


__all__ = ["pb", "stub"]
