"""Asks a server over its Unix socket what it has loaded, and whether it answers."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bundle_door.wire.inference import from_body
from bundle_door.wire.over_http import plain
from bundle_serving.health import find_example
from bundle_serving.process import sockets
from bundle_serving.protocol import kserve
from bundle_serving.work import QUEUE_FULL

pb = kserve.pb

SECONDS = 3
LOAD_S = 90
IN_TRANSIT = {"LOADING", "UNLOADING"}

# The server is overloaded: that is not a fault.
BUSY = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}


@dataclass(frozen=True)
class Refusal:
    """Why a request was not answered."""

    reason: str
    busy: bool


class Triton:
    def __init__(self, folder: Path, own_id: str) -> None:
        self._own_id = own_id
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.enable_http_proxy", 0),
        ]
        self._stub = kserve.stub(grpc.aio.insecure_channel(sockets.target(folder), options=options))
        self._configs: dict[str, Any] = {}

    async def states(self) -> dict[tuple[str, str], str]:
        """Of each version that was ever loaded. Triton lists the whole repository for it, which on
        S3 is a request or more for each model: not to be asked again and again."""
        index = await self._stub.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=SECONDS)
        return {(each.name, each.version): each.state for each in index.models if each.state}

    async def ready(self) -> set[str]:
        """The models with a ready version, without a look at the repository."""
        return {*await self.counts()}

    async def config(self, model: str, version: str = "") -> Any:
        """The server's config, which may differ from the repository's."""
        asked = pb.ModelConfigRequest(name=model, version=version)
        return (await self._stub.ModelConfig(asked, timeout=SECONDS)).config

    async def counts(self) -> Counter[str]:
        """Requests to all versions of a model since the server's start, answered or not."""
        answer = await self._stub.ModelStatistics(pb.ModelStatisticsRequest(), timeout=SECONDS)
        counts: Counter[str] = Counter()
        for each in answer.model_stats:
            stats = each.inference_stats
            counts[each.name] += stats.success.count + stats.fail.count
        return counts

    async def load(self, model: str, config: Any = None) -> None:
        """With a config that differs from the current one, the model is reloaded."""
        asked = pb.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            from google.protobuf import json_format  # seldom needed

            text = json_format.MessageToJson(config, preserving_proto_field_name=True)
            asked.parameters["config"].string_param = text
        await self._stub.RepositoryModelLoad(asked, timeout=LOAD_S)

    async def ask(self, pipeline: str, seconds: float) -> Refusal | None:
        """None if it answered a test request."""
        try:
            config = await self.learn(pipeline)
            asked = question(config, self._own_id)
            if config.model_transaction_policy.decoupled:
                return await self._ask_for_several(asked, seconds)
            await self._stub.ModelInfer(asked, timeout=seconds)
        except grpc.aio.AioRpcError as fault:
            message = self._shorten_message(str(fault.details()))
            busy = fault.code() in BUSY or QUEUE_FULL in message
            return Refusal(message or fault.code().name, busy)
        return None

    def _shorten_message(self, message: str) -> str:
        """In one line, and without the id, for others read it."""
        return " ".join(message.replace(self._own_id, "of the keeper").split())[:300]

    async def _ask_for_several(self, asked: Any, seconds: float) -> Refusal | None:
        async for answer in self._stub.ModelStreamInfer(iter([asked]), timeout=seconds):
            if message := answer.error_message:
                return Refusal(self._shorten_message(message), QUEUE_FULL in message)
        return None

    async def learn(self, pipeline: str) -> Any:
        """Its config, by which it is asked. The last known one while Triton waits for S3: then it
        answers requests, but tells nothing about its models."""
        try:
            self._configs[pipeline] = await self.config(pipeline)
        except grpc.aio.AioRpcError as fault:
            waits = fault.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if not (waits and pipeline in self._configs):
                raise
        return self._configs[pipeline]


def question(config: Any, own_id: str) -> Any:
    """A test request for a pipeline."""
    body, length = find_example(plain(config))
    asked = from_body(config.name, "", body, length, request_id=own_id)
    return pb.ModelInferRequest.FromString(b"".join(asked.pieces))
