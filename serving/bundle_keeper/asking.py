"""What the keeper asks: over its Unix socket the server, what it has loaded and whether it answers;
and as users do, at the door's ports, by TLS and with a key where they want them."""

import argparse
import asyncio
import http.client
import ssl
import urllib.error
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bundle_door.front.messages import HEALTH_METHOD
from bundle_door.wire.calls import PREFIX, CallFailed, message_of, usual_fields
from bundle_door.wire.http2 import Connection, Reset
from bundle_door.wire.inference import from_body
from bundle_door.wire.over_http import plain
from bundle_serving.address import Address, trusting
from bundle_serving.health import ask_example, find_example, own
from bundle_serving.process import sockets
from bundle_serving.protocol import kserve
from bundle_serving.work import QUEUE_FULL

pb = kserve.pb

SECONDS = 3
LOAD_S = 90
IN_TRANSIT = {"LOADING", "UNLOADING"}

# The server is overloaded: that is not a fault.
BUSY = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}

AS_USERS_S = 8
# What a busy server answers them: too many, too late.
BUSY_STATUS = {429, 503, 504}
# It is busy; has as many connections as there may be, and closes each that comes beyond, before or
# after the question's first part is sent; or its certificate is being renewed, and the one in the
# folder is not yet shown.
PASSING = (TimeoutError, ConnectionResetError, BrokenPipeError, ssl.SSLCertVerificationError)
AWAY = "starting or has stopped"
# Envoy's words where it does not reach what is behind it.
NOT_REACHED = ("connect-failure", "connection failure", "connect error", "no healthy upstream")


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
            # A config holds its pipeline's example, which may be a batch of pictures.
            ("grpc.max_receive_message_length", -1),
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
                async for answer in self._stub.ModelStreamInfer(iter([asked]), timeout=seconds):
                    if said := answer.error_message:
                        return Refusal(self._shorten_message(said), QUEUE_FULL in said)
                return None
            await self._stub.ModelInfer(asked, timeout=seconds)
        except grpc.aio.AioRpcError as fault:
            message = self._shorten_message(str(fault.details()))
            busy = fault.code() in BUSY or QUEUE_FULL in message
            return Refusal(message or fault.code().name, busy)
        return None

    def _shorten_message(self, message: str) -> str:
        """In one line, and without the id, for others read it."""
        return " ".join(message.replace(self._own_id, "of the keeper").split())[:300]

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


class Front:
    def __init__(self, options: argparse.Namespace) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.address, options.address)
        self._http = own(Address(host, int(options.http_port)), options.admin_key_file)
        self._grpc_port = int(options.grpc_port)
        self._shared = bool(options.door_last)  # another server may answer there

    async def explain_closed(self, pipeline: str) -> str | None:
        """Why nobody is answered there; None also where it is only busy."""
        if self._http.port and (reason := await asyncio.to_thread(self._over_http, pipeline)):
            return f"port {self._http.port}: {reason}"
        if self._grpc_port and (reason := await self._over_grpc()):
            return f"port {self._grpc_port}: {reason}"
        return None

    def _over_http(self, pipeline: str) -> str | None:
        try:
            ask_example(self._http, pipeline, AS_USERS_S)
        except urllib.error.HTTPError as refusal:
            told = refusal.read().decode(errors="replace")[:300]
            busy = refusal.code in BUSY_STATUS and AWAY not in told and not _is_not_reached(told)
            # That one has not this pipeline.
            others = self._shared and refusal.code == http.HTTPStatus.NOT_FOUND
            return None if busy or others else f"HTTP {refusal.code}: {told}"
        except (OSError, ValueError, KeyError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            return None if isinstance(reason, PASSING) else str(reason) or type(reason).__name__
        return None

    async def _over_grpc(self) -> str | None:
        """Triton's own answer, by way of Envoy; it needs no key, and has no line in the log."""
        context = None
        if self._http.certificate:
            context = trusting(self._http.certificate)
            context.set_alpn_protocols(["h2"])
        connection = None
        try:
            async with asyncio.timeout(AS_USERS_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, self._http.host, self._grpc_port, ssl=context
                )
                body = [PREFIX.pack(False, 0)]
                stream = connection.request(usual_fields(HEALTH_METHOD, AS_USERS_S), body)
                await stream.ended
                message_of(stream)
        except CallFailed as failed:
            busy = failed.code in BUSY or (
                failed.code == grpc.StatusCode.UNAVAILABLE and not _is_not_reached(str(failed))
            )
            return None if busy else str(failed)
        except PASSING:
            return None
        except (OSError, Reset) as fault:
            return str(fault) or type(fault).__name__
        finally:
            if connection:
                connection.close()
        return None


def _is_not_reached(told: str) -> bool:
    return any(words in told for words in NOT_REACHED)
