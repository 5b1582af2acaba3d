"""Triton behind its socket: one channel, and its errors as HTTP statuses."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import grpc

from bundle_door.answers import RETRY_SOON, Refused
from bundle_door.limits import Counts
from bundle_door.requests import TO
from bundle_door.wire.calls import CallFailed, Calls, Disconnected
from bundle_door.wire.http2 import Pairs
from bundle_door.wire.inference import CLASSES, Asked, Signature
from bundle_serving.process import keeper_notes, sockets
from bundle_serving.protocol.kserve import pb
from bundle_serving.work import LATER

Answered = TypeVar("Answered")

SERVICE = "/inference.GRPCInferenceService/"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Find a restarted server at once, not after minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.default_authority", "localhost"),
]

# As in Triton's own HTTP server, and Envoy's of keys; all others are the caller's fault: 400.
STATUS = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
# Triton's message if a model may have several answers, or none, to a request.
OF_SEVERAL = "doesn't support models with decoupled transaction policy"
# Triton's message if a model's process has died, and the pauses before further attempts; the last
# one repeats. What is dead answers at once, and so takes most requests from those that live.
OF_A_DEAD_PROCESS = "Stub process '"
PASSES = OF_A_DEAD_PROCESS, LATER  # what is asked again
PAUSES_S = (0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# While Triton is started again, at most so many requests wait for it, each within its own time, and
# look so often. One that was sent when Triton ended is sent once more: it may be what ended it.
MOST_WAITING, LOOK_S, MOST_SENT = 512, 0.2, 2
# Triton's message for a model that it has not loaded yet, or not at all; and what is said of one
# that the keeper is about to load.
OF_AN_UNKNOWN_MODEL = "Request for unknown model"
AWAY = "the server is starting or has stopped; try again in a second"
ON_ITS_WAY = "the model is being loaded; try again in a second"
NOTHING: Mapping[str, str] = {}
DATA_TYPES = pb.model__config__pb2.DataType
TEXTS = DATA_TYPES.Value("TYPE_STRING")
NO_CLASSES = f"texts have no classes; ask for them without '{CLASSES}'"
# How long a model's config is cached, for a new version may have another; and how long a request
# waits for a newer one, which Triton does not tell while it waits for S3.
REMEMBERED_S, NEWER_S = 1.0, 0.1


class Away(Refused):
    """Triton has stopped, or is starting."""

    def __init__(self, sent: bool) -> None:
        super().__init__(503, AWAY, RETRY_SOON)
        self.sent = sent


class Triton:
    """Calls Triton's gRPC service; every error becomes a `Refused`."""

    def __init__(
        self, run_dir: Path, timeout: float, counts: Counts | None = None, key: str = ""
    ) -> None:
        """`key` lets it in at other servers' doors."""
        folder = sockets.folder(run_dir)
        socket = folder / sockets.GRPC
        # For streams; all else goes the cheaper way.
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._stream = self.channel.stream_stream(
            SERVICE + "ModelStreamInfer",
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        self._calls, self._others = Calls(socket), Calls(folder / sockets.OTHERS)
        self._key = (("authorization", f"Bearer {key}"),) if key else ()
        self._timeout = timeout
        self._configs: dict[tuple[str, str], tuple[float, Any]] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._counts = counts or Counts()
        self._run_dir = run_dir

    async def close(self) -> None:
        self._calls.close()
        self._others.close()
        await self.channel.close()

    async def infer(
        self, model: str, asked: Asked, onwards: Mapping[str, str] = NOTHING, waits: bool = True
    ) -> pb.ModelInferResponse:
        """Retries if a picture has to wait for its turn, or one of a model's processes has died:
        Triton takes a second to report it, and keeps sending it requests until the keeper has
        reloaded the model."""
        metadata = tuple(onwards.items())

        async def infer(seconds: float) -> pb.ModelInferResponse:
            overdue, pauses = time.monotonic() + seconds, chain(PAUSES_S, repeat(PAUSES_S[-1]))
            while True:
                left = math.ceil(overdue - time.monotonic())
                try:
                    return await self._call("ModelInfer", asked.pieces, metadata, left)
                except Refused as refused:
                    if OF_SEVERAL in str(refused) and TO not in onwards:
                        return await self._infer_several(b"".join(asked.pieces), metadata)
                    pause = next(pauses)
                    is_late = time.monotonic() + pause >= overdue
                    if is_late or not any(each in str(refused) for each in PASSES):
                        raise
                    await asyncio.sleep(pause)

        return await self._patiently(model, infer, waits and TO not in onwards)

    async def infer_message(self, message: bytes, onwards: Mapping[str, str] = NOTHING) -> bytes:
        """What came over gRPC, as it came; a `CallFailed` has Triton's own code. It is asked once:
        Envoy asks again."""
        calls, metadata = self._find_way(tuple(onwards.items()))
        try:
            return await calls.call(f"{SERVICE}ModelInfer", [message], self._timeout, metadata)
        except Disconnected as gone:
            raise CallFailed(gone.code, ON_ITS_WAY) from None

    async def _patiently(
        self, model: str, call: Callable[[float], Awaitable[Answered]], waits: bool
    ) -> Answered:
        """Also if Triton is started again meanwhile. `call` takes the seconds that it has."""
        left, sent, may_have_come = self._timeout, 0, True
        overdue = time.monotonic() + left
        while True:
            try:
                return await call(left)
            except Refused as refused:
                if not waits:
                    raise
                if isinstance(refused, Away):
                    sent += refused.sent
                elif OF_AN_UNKNOWN_MODEL not in str(refused):
                    raise
                elif model not in keeper_notes.read_coming(self._run_dir):
                    if not may_have_come:  # since it was asked
                        raise
                    may_have_come = False
                    continue
                left = math.ceil(overdue - time.monotonic() - LOOK_S)
                waiting = self._counts.sum_up(Counts.WAITING)
                if left <= 0 or sent >= MOST_SENT or waiting >= MOST_WAITING:
                    raise
            self._counts.add(Counts.WAITING, 1)
            try:
                await asyncio.sleep(LOOK_S)
            finally:
                self._counts.add(Counts.WAITING, -1)

    async def _infer_several(
        self, request: bytes, metadata: tuple[tuple[str, str], ...]
    ) -> pb.ModelInferResponse:
        answers = self.ask_for_several(request, self._timeout, metadata)
        try:
            return join_answers([answer.infer_response async for answer in answers])
        except grpc.aio.AioRpcError as error:
            raise explain_refusal(error.code(), error.details() or "", self._timeout) from None

    async def ask_for_several(
        self, request: bytes, timeout: float | None, metadata: tuple[tuple[str, str], ...] = ()
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """All answers of a decoupled model."""
        async for answer in self._stream(iter([request]), timeout=timeout, metadata=metadata):
            if answer.error_message:
                raise Refused(500, answer.error_message)
            yield answer

    async def wait_until_loaded(self, request: bytes) -> None:
        """Waits where the keeper is about to load the model that is asked."""
        while names := keeper_notes.read_coming(self._run_dir):
            if pb.ModelInferRequest.FromString(request).model_name not in names:
                return
            await asyncio.sleep(LOOK_S)

    async def refuse_classes(
        self, model: str, version: str, outputs: Sequence[str], waits: bool = True
    ) -> None:
        """Of texts: over them Triton 2.51 divides by zero, and ends."""
        try:
            config = await self._config(model, version, waits)
        except Refused as refused:
            if refused.status not in (400, 404):
                raise  # it is not known
            return  # for the same reason as what is asked
        if any(each.data_type == TEXTS and each.name in outputs for each in config.output):
            raise Refused(400, NO_CLASSES)

    async def refuse_classes_of(self, request: bytes) -> None:
        if CLASSES.encode() not in request:
            return
        asked = pb.ModelInferRequest.FromString(request)
        outputs = [each.name for each in asked.outputs if CLASSES in each.parameters]
        if outputs:
            await self.refuse_classes(asked.model_name, asked.model_version, outputs)

    async def ask(self, method: str, **fields: Any) -> Any:
        """Calls a method with a request with these fields."""
        request = getattr(pb, f"{method}Request")(**fields)
        return await self._call(method, [request.SerializeToString()], (), self._timeout)

    async def describe(self, method: str, model: str, version: str, waits: bool = True) -> Any:
        """A model's metadata or config."""
        named = {"name": model, "version": version}
        return await self._patiently(model, lambda _: self.ask(method, **named), waits)

    async def signature(self, model: str, version: str, waits: bool = True) -> Signature:
        """A model's only input."""
        return signature_of(await self._config(model, version, waits))

    async def _config(self, model: str, version: str, waits: bool) -> Any:
        return await self._patiently(model, lambda _: self._recent_config(model, version), waits)

    async def _recent_config(self, model: str, version: str) -> Any:
        named = model, version
        asked, known = self._configs.get(named, (0.0, None))
        if known and time.monotonic() < asked + REMEMBERED_S:
            return known
        newer = self._asking.get(named)
        if newer is None:
            newer = asyncio.create_task(self._newer_config(model, version))
            newer.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._asking[named] = newer
            if known:
                await asyncio.wait([newer], timeout=NEWER_S)
        if known and not newer.done():
            return known
        return await asyncio.shield(newer)

    async def _newer_config(self, model: str, version: str) -> Any:
        try:
            answer = await self.ask("ModelConfig", name=model, version=version)
        finally:
            del self._asking[model, version]
        if len(self._configs) > 100:
            self._configs.clear()
        self._configs[model, version] = time.monotonic(), answer.config
        return answer.config

    def _find_way(self, metadata: Pairs) -> tuple[Calls, Pairs]:
        """To Triton; or, through Envoy, to the door of another server."""
        if any(name == TO for name, _ in metadata):
            return self._others, (*metadata, *self._key)
        return self._calls, metadata

    async def _call(
        self,
        method: str,
        request: Sequence[bytes | memoryview],
        metadata: Pairs,
        seconds: float,
    ) -> Any:
        """Takes the serialised request, so that a picture is not copied into a message first."""
        calls, metadata = self._find_way(metadata)
        try:
            answer = await calls.call(SERVICE + method, request, seconds, metadata)
        except Disconnected as gone:
            raise Away(gone.sent) from None
        except CallFailed as failed:
            raise explain_refusal(failed.code, str(failed), self._timeout) from None
        return getattr(pb, f"{method}Response").FromString(answer)


def join_answers(answers: Sequence[pb.ModelInferResponse]) -> pb.ModelInferResponse:
    """The rows of all answers, one after the other."""
    if not answers:
        raise Refused(500, "it gave no answer")
    whole = answers[0]
    for number, output in enumerate(whole.outputs):
        shapes = [list(answer.outputs[number].shape) for answer in answers]
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise Refused(400, f"its answers have {output.name} of several shapes; use a stream")
        output.shape[0] = sum(shape[0] for shape in shapes)
        whole.raw_output_contents[number] = b"".join(
            answer.raw_output_contents[number] for answer in answers
        )
    return whole


def status_of(code: grpc.StatusCode) -> int:
    return STATUS.get(code, 400)


def explain_refusal(code: grpc.StatusCode, message: str, timeout: float) -> Refused:
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Refused(504, f"no answer within {timeout:g} s; try again, or allow more time")
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in message.lower():
        return Away(sent=True)
    status = status_of(code)
    return Refused(status, message, RETRY_SOON if status == 503 else None)


def signature_of(config: Any) -> Signature:
    if len(config.input) != 1:
        raise Refused(
            400,
            f"{config.name} has {len(config.input)} inputs, but a raw body is only one; "
            f"send JSON to /v2/models/{config.name}/infer",
        )
    (tensor,) = config.input
    classified = [output for output in config.output if output.data_type != TEXTS]
    labelled = [output.name for output in classified if output.label_filename]
    datatype = DATA_TYPES.Name(tensor.data_type).removeprefix("TYPE_")
    return Signature(
        tensor.name,
        "BYTES" if datatype == "STRING" else datatype,
        tuple(tensor.dims),
        batches=config.max_batch_size > 0,
        output=next(iter([*labelled, *(output.name for output in classified)]), ""),
    )
