"""tritonclient as it is, over HTTP and gRPC, through the door."""

import asyncio
import json
import queue
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.http.aio
from tritonclient.grpc.service_pb2 import ModelInferRequest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from bundle_serving.process.guard import GRPC_HEADER, HEADER
from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked

pytestmark = on_a_gpu_too

JPEG = np.frombuffer(b"\xff\xd8" + bytes(range(256)) * 400, np.uint8)[np.newaxis]
MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}
ADMIN = {"http": HEADER, "grpc": GRPC_HEADER}


@pytest.fixture(params=MODULES)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Asked, protocol: str) -> Iterator[Any]:
    port = server.http_port if protocol == "http" else server.grpc_port
    with MODULES[protocol].InferenceServerClient(f"localhost:{port}") as connected:
        yield connected


def inputs(protocol: str) -> list[Any]:
    tensor = MODULES[protocol].InferInput("INPUT", list(JPEG.shape), "UINT8")
    tensor.set_data_from_numpy(JPEG)
    return [tensor]


def test_infer(client: Any, protocol: str) -> None:
    answer = client.infer("picture", inputs(protocol)).as_numpy("OUTPUT")
    assert answer.shape == (1, 3) and abs(answer.sum() - 1) < 1e-6


def test_classes(client: Any, protocol: str) -> None:
    output = MODULES[protocol].InferRequestedOutput("OUTPUT", class_count=2)
    answer = client.infer("picture", inputs(protocol), outputs=[output]).as_numpy("OUTPUT")
    assert [text.split(b":")[2] for text in answer[0]] == [b"low", b"middling"]


def test_compression(client: Any, protocol: str) -> None:
    if protocol == "grpc":
        with pytest.raises(InferenceServerException, match="gzip over HTTP"):
            client.infer("picture", inputs(protocol), compression_algorithm="gzip")
        return
    codec = {f"{way}_compression_algorithm": "deflate" for way in ("request", "response")}
    assert client.infer("picture", inputs(protocol), **codec).as_numpy("OUTPUT").shape == (1, 3)


def test_metadata_and_health(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("picture") and not client.is_model_ready("none")
    for read in (client.get_server_metadata, lambda: client.get_model_metadata("picture")):
        assert read()
    assert client.get_model_config("picture")


def test_what_is_told_for_asyncio(server: Asked) -> None:
    """Its client over HTTP says that it takes what is compressed."""

    async def ask() -> list[Any]:
        address = f"localhost:{server.http_port}"
        async with tritonclient.http.aio.InferenceServerClient(address) as client:
            return [
                await client.get_server_metadata(),
                await client.get_model_metadata("picture"),
                await client.get_model_config("picture"),
                await client.get_inference_statistics("picture"),
            ]

    assert all(asyncio.run(ask()))


@pytest.mark.parametrize(
    ("port", "path", "status", "error"),
    [
        ("metrics_port", "/", 404, "the metrics are at /metrics"),
        ("http_port", "/v2/models/a%2Fb", 400, "its path has an escaped slash"),
    ],
)
def test_what_goes_no_further_says_why(
    server: Asked, port: str, path: str, status: int, error: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://localhost:{getattr(server, port)}{path}")
    assert refused.value.code == status
    assert error in json.load(refused.value)["error"]


@pytest.mark.parametrize(("offered", "status"), [("TLS/1.2", 200), ("websocket", 403)])
def test_another_protocol_that_a_client_offers(server: Asked, offered: str, status: int) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": offered}
    assert server.ask("GET", "/v2", headers=headers)[0] == status


def test_a_refusal_keeps_its_status(client: Any, protocol: str) -> None:
    tensor = MODULES[protocol].InferInput("INPUT", [1, 3], "UINT8")
    tensor.set_data_from_numpy(np.zeros((1, 3), np.uint8))
    with pytest.raises(InferenceServerException, match="not a JPEG; send one") as refusal:
        client.infer("picture", [tensor])
    assert refusal.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


ADMIN_CALLS: dict[str, Callable[[Any, dict[str, str]], Any]] = {
    "index": lambda c, h: c.get_model_repository_index(headers=h),
    "load": lambda c, h: c.load_model("text", headers=h),
    "trace": lambda c, h: c.get_trace_settings(headers=h),
    "logging": lambda c, h: c.get_log_settings(headers=h),
    "system memory": lambda c, h: c.get_system_shared_memory_status(headers=h),
    "cuda memory": lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    "unregister": lambda c, h: c.unregister_system_shared_memory(headers=h),
    "unregister cuda": lambda c, h: c.unregister_cuda_shared_memory(headers=h),
}


@pytest.mark.parametrize("name", ADMIN_CALLS)
def test_admin_calls_want_the_key(server: Asked, client: Any, protocol: str, name: str) -> None:
    call, header = ADMIN_CALLS[name], ADMIN[protocol]
    call(client, {header: server.admin_key})
    for headers in ({}, {header: "0123456789abcdef0123456789abcdef"}):
        with pytest.raises(InferenceServerException) as refusal:
            call(client, headers)
        assert refusal.value.status() in ("403", "StatusCode.PERMISSION_DENIED")


def test_streams(server: Asked) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(f"localhost:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        for number in range(3):
            client.async_stream_infer("picture", inputs("grpc"), request_id=str(number))
        found = [answers.get(timeout=60) for _ in range(3)]
        client.stop_stream()
    assert {answer.get_response().id for answer in found} == {"0", "1", "2"}


def test_a_stream_with_status_ends_with_an_errors_and_triton_goes_on(server: Asked) -> None:
    """Many times: it was the fourth to the seventeenth that ended Triton itself."""
    import grpc

    picture, no_picture = JPEG.tobytes(), b"text"
    processes = server.roots()
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        ask = GRPCInferenceServiceStub(channel).ModelStreamInfer
        for _ in range(60):
            asked = [request_of(file) for file in (picture, no_picture, picture)]
            answers = ask(iter(asked), metadata=[("triton_grpc_error", "true")], timeout=60)
            assert next(answers).infer_response.model_name == "picture"
            with pytest.raises(grpc.RpcError, match="not a JPEG") as refusal:
                next(answers)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert server.roots() == processes and server.ask("GET", "/v2/health/ready")[0] == 200


def request_of(file: bytes) -> ModelInferRequest:
    tensor = ModelInferRequest.InferInputTensor(
        name="INPUT", datatype="UINT8", shape=[1, len(file)]
    )
    return ModelInferRequest(model_name="picture", inputs=[tensor], raw_input_contents=[file])


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_that_is_too_large(server: Asked, stream: bool) -> None:
    """Refused, and the next one is answered."""
    large = tritonclient.grpc.InferInput("INPUT", [1, 70_000_000], "UINT8")
    large.set_data_from_numpy(np.full((1, 70_000_000), 255, np.uint8))
    with tritonclient.grpc.InferenceServerClient(f"localhost:{server.grpc_port}") as client:
        with pytest.raises(InferenceServerException) as refusal:
            if stream:
                raise streamed(client, [large])
            client.infer("picture", [large])
        assert refusal.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert client.infer("picture", inputs("grpc"))


def streamed(client: Any, tensors: list[Any]) -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer("picture", tensors)
    answer = answers.get(timeout=60)
    client.stop_stream(cancel_requests=True)
    return answer


@pytest.mark.parametrize("method", ["ServerReflection", "ModelInfer2"])
def test_other_methods_are_not_there(server: Asked, method: str) -> None:
    import grpc

    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        with pytest.raises(grpc.RpcError) as refusal:
            call(b"", timeout=60)
        assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED
