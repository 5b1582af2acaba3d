"""Triton's messages and its gRPC service from tritonclient, without the rest of tritonclient.

That would import numpy, gRPC and tritonclient's own clients: 14 MB and more than a second in each
process that only passes messages on or reads a config.

triton = kserve.stub(grpc.aio.insecure_channel(target))
await triton.ServerReady(kserve.pb.ServerReadyRequest())
"""

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

PACKAGE = "tritonclient.grpc"
_one_at_a_time = Lock()


@contextmanager
def _without_its_init() -> Iterator[None]:
    """Lets the package's modules be imported; the whole package can still be imported later."""
    spec = importlib.util.find_spec("tritonclient")
    assert spec and spec.origin, "tritonclient is not installed"
    stand_in = types.ModuleType(PACKAGE)
    stand_in.__path__ = [str(Path(spec.origin).parent / "grpc")]
    with _one_at_a_time:
        real = sys.modules.get(PACKAGE)
        sys.modules[PACKAGE] = real or stand_in
        try:
            yield
        finally:
            if real is None:
                del sys.modules[PACKAGE]


with _without_its_init():
    from tritonclient.grpc import service_pb2 as pb
    from tritonclient.grpc.model_config_pb2 import ModelConfig


def stub(channel: Any) -> Any:
    with _without_its_init():
        from tritonclient.grpc import service_pb2_grpc  # with gRPC
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


__all__ = ["ModelConfig", "pb", "stub"]
