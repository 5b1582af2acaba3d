"""The request log of a real door: each request has its line, over HTTP and gRPC."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bundle_door.access import certificate
from bundle_serving import CHECK_HEADER, own_requests
from bundle_serving.process.exposure import CERTIFICATE
from bundle_serving.protocol.kserve import pb
from tests.door.servers import KEY, Behind, behind_the_door
from tests.door.test_exposure import authorized, give_keys, over_grpc
from tests.door.test_life import INFER, JPEG, RAW
from tests.project import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Behind, Path]]:
    folder = tmp_path_factory.mktemp("logged")
    file = folder / "door.log"
    with into(file), behind_the_door(folder / "run", options=("--log-format=json",)) as server:
        yield server, file


@contextlib.contextmanager
def into(file: Path) -> Iterator[None]:
    """What is started here writes to this file."""
    kept = os.dup(1)
    with file.open("a") as log:
        os.dup2(log.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def lines(file: Path) -> list[dict[str, object]]:
    texts = [line for line in file.read_text().splitlines() if line.startswith('{"time"')]
    return [json.loads(line) for line in texts]


def line_of(file: Path, request_id: str) -> dict[str, object]:
    def found() -> list[dict[str, object]]:
        return [each for each in lines(file) if each.get("id") == request_id]

    wait_until(found, f"the line of {request_id}")
    (line,) = found()
    return line


def test_over_http(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    headers = {**RAW, **TRACEPARENT, "x-request-id": "first"}
    status, answered, body = server.ask("POST", INFER, JPEG, headers)
    assert status == 200 and answered["x-request-id"] == "first"
    line = line_of(file, "first")
    assert (line["protocol"], line["path"], line["status"]) == ("http", INFER, 200)
    assert (line["bytes_in"], line["bytes_out"]) == (len(JPEG), len(body))
    assert line["trace"] == TRACE


def test_a_refusal_and_no_query(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    headers = {"x-request-id": "refused"}
    assert server.ask("POST", "/classify?model=text&key=secret", b"", headers)[0] == 400
    assert (line_of(file, "refused")["status"], line_of(file, "refused")["bytes_in"]) == (400, 0)
    assert "secret" not in file.read_text()


def test_no_header_keeps_a_request_out_but_that_of_ours(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    own = own_requests.id_of(KEY)
    for name, checked in (("own", own), ("stranger", "1"), ("guess", KEY)):
        headers = {**RAW, CHECK_HEADER: checked, "x-request-id": name}
        assert server.ask("POST", INFER, JPEG, headers)[0] == 200
    assert line_of(file, "stranger") and line_of(file, "guess")
    assert not [each for each in lines(file) if each.get("id") == "own"]


def test_an_id_is_made_where_the_clients_is_odd(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    _, answered, _ = server.ask("GET", "/v2", headers={"x-request-id": 'a" status=1'})
    assert line_of(file, answered["x-request-id"])["path"] == "/v2"


def test_over_grpc(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    request = pb.ModelInferRequest(model_name="picture", raw_input_contents=[JPEG])
    request.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
    metadata = (("x-request-id", "over-grpc"), *TRACEPARENT.items())
    with over_grpc(server) as triton:
        triton.ModelInfer(request, metadata=metadata)
    line = line_of(file, "over-grpc")
    assert (line["protocol"], line["status"], line["trace"]) == ("grpc", "OK", TRACE)
    assert line["pipeline"] == "picture" and "version" not in line
    assert str(line["path"]).endswith("/ModelInfer") and "refused" not in line


@pytest.mark.parametrize(
    ("compression", "first", "version", "last", "asked"),
    [
        (grpc.Compression.NoCompression, b"", "1", b"", ("picture", "1")),
        (grpc.Compression.NoCompression, b"", "x" * 256, b"", ("picture", "x" * 256)),
        (grpc.Compression.NoCompression, b"", "x" * 257, b"", ("picture", None)),
        (grpc.Compression.Gzip, b"", "1", b"", (None, None)),
        # An id before the name; a name that is none; a version that is none to Triton, a number.
        (grpc.Compression.NoCompression, b"\x1a\x01a", "1", b"", ("picture", "1")),
        (grpc.Compression.NoCompression, b"\x0a\x7f", "", b"", (None, None)),
        (grpc.Compression.NoCompression, b"\x11whatever", "", b"", ("picture", None)),
        # The last of several counts, also if it is empty.
        (grpc.Compression.NoCompression, b"", "1", b"\x0a\x00", (None, "1")),
        (grpc.Compression.NoCompression, b"", "1", b"\x12\x00", ("picture", None)),
    ],
)
def test_what_is_asked_over_grpc(
    logged: tuple[Behind, Path],
    compression: grpc.Compression,
    first: bytes,
    version: str,
    last: bytes,
    asked: tuple[str | None, str | None],
) -> None:
    server, file = logged
    request_id = f"asked-{compression.name}-{first.hex()}-{len(version)}-{last.hex()}"
    message = pb.ModelInferRequest(model_name="picture", model_version=version, id=100 * "x")
    metadata = [("x-request-id", request_id)]
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError):  # it has no input
            sent = first + message.SerializeToString() + last
            call(sent, metadata=metadata, compression=compression)
    line = line_of(file, request_id)
    assert (line.get("pipeline"), line.get("version")) == asked


def test_a_message_that_is_too_large(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError):
            call(bytes(70_000_000), metadata=[("x-request-id", "too-large")], timeout=60)
    assert line_of(file, "too-large")["status"] == "RESOURCE_EXHAUSTED"


def test_who_hangs_up_over_grpc(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError):
            call(iter(lambda: time.sleep(60), None), metadata=[("x-request-id", "gone")], timeout=1)
    assert line_of(file, "gone")["status"] == 499


def test_what_envoy_itself_refuses(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    headers = {"Host": "rebound.example.org", "x-request-id": "rebound"}
    assert server.ask("GET", "/v2", headers=headers)[0] == 403
    assert (line_of(file, "rebound")["refused"], line_of(file, "rebound")["status"]) == (
        "direct_response",
        403,
    )


def test_who_sends_more_than_the_rate(tmp_path: Path) -> None:
    file = tmp_path / "door.log"
    certificate.ensure(tmp_path, [])
    give_keys(tmp_path / "api.keys")
    options = ["--log-format=json", "--bind=0.0.0.0", "--address=127.0.0.1"]
    options += [f"--api-keys={tmp_path / 'api.keys'}", f"--tls-folder={tmp_path}"]
    hurried = authorized("key-of-often")
    with (
        into(file),
        behind_the_door(tmp_path / "run", options=options, tls=tmp_path / CERTIFICATE) as server,
    ):
        statuses = [
            server.ask("GET", "/v2", headers={**hurried, "x-request-id": f"hurried-{number}"})[0]
            for number in range(9)
        ]
        assert statuses[0] == 200 and statuses[-1] == 429
        line = line_of(file, "hurried-8")
        assert (line["client"], line["refused"]) == ("often", "ext_authz_denied")
        assert server.ask("GET", "/v2", headers={"x-request-id": "nobody"})[0] == 401
        assert "client" not in line_of(file, "nobody")


def test_health_and_keys_are_not_in_it(logged: tuple[Behind, Path]) -> None:
    server, file = logged
    server.ask("GET", "/v2/health/ready")
    headers = {"admin-key": KEY, "x-request-id": "admin"}
    assert server.ask("POST", "/v2/repository/index", headers=headers)[0] == 200
    line_of(file, "admin")
    assert KEY not in file.read_text()
    assert not [each for each in lines(file) if str(each["path"]).startswith("/v2/health")]
