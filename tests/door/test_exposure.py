"""Who may ask a server that other machines reach: keys, their rates, TLS, pages from elsewhere."""

import contextlib
import http.client
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np
import pytest
import tritonclient.grpc

from bundle_door.access import certificate
from bundle_door.access.key_file import BadKeys, Client, add, hash_key, read, revoke
from bundle_door.access.keys import Bucket
from bundle_door.front.messages import INFER
from bundle_serving.address import BALANCED, BALANCER_HEADER
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY, Exposure
from bundle_serving.process.guard import make_pass
from bundle_serving.protocol.kserve import pb, stub
from tests.door.rehearsed import ON_A_GPU, Rehearsed, opened
from tests.door.servers import Asked, behind_the_door
from tests.door.test_clients import request_of
from tests.project import ROOT, picture, wait_until

PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the door of a server that other machines reach is given."""
    folder = tmp_path_factory.mktemp("exposed")
    certificate.ensure(folder, [])
    give_keys(folder / "api.keys")
    return folder


def give_keys(file: Path) -> None:
    keys = (f"{name} {hash_key(f'key-of-{name}')}" for name in ("ann", "eve", "often", "oft-grpc"))
    rates = {"often": " 2", "oft-grpc": " 2"}
    lines = (f"{line}{rates.get(line.split()[0], '')}\n" for line in keys)
    file.write_text("".join(lines))
    revoke(file, "eve")


@pytest.fixture(scope="module", params=["by_processes", ON_A_GPU])
def exposed(request: pytest.FixtureRequest) -> Iterator[Asked]:
    if request.param == "on_a_gpu":
        closed: Rehearsed = request.getfixturevalue("on_a_gpu")
        give_keys(closed.key_file)
        with opened(closed, CORS_ORIGINS=PAGE) as started:
            yield started
        return
    folder: Path = request.getfixturevalue("folder")
    key_file, tls = folder / "api.keys", folder / CERTIFICATE
    options = [
        *("--address", "127.0.0.1", "--bind", "0.0.0.0"),
        *("--api-keys", str(key_file), "--tls-folder", str(folder)),
        *("--cors-origins", PAGE),
    ]
    with behind_the_door(folder / "run", models=["picture"], options=options, tls=tls) as started:
        yield replace(started, key_file=key_file)


def authorized(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ask(server: Asked, path: str, headers: dict[str, str], port: int | None = None) -> int:
    return server.ask("GET", path, headers=headers, connection=server.connection(port))[0]


def open_channel(server: Asked) -> grpc.Channel:
    target = f"localhost:{server.grpc_port}"
    if not server.tls:
        return grpc.insecure_channel(target)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(server.tls.read_bytes()))


@contextlib.contextmanager
def over_grpc(server: Asked) -> Iterator[Any]:
    with open_channel(server) as channel:
        yield stub(channel)


def asked_over_grpc(triton: Any, call: str, headers: dict[str, str]) -> str:
    """The status of an answer."""
    question = getattr(pb, f"{call}Request")()
    metadata = [(name.lower(), value) for name, value in headers.items()]
    try:
        getattr(triton, call)(question, metadata=metadata, timeout=60)
    except grpc.RpcError as refusal:
        return str(refusal.code().name)
    return "OK"


ANN, EVE, EVIL = authorized("key-of-ann"), authorized("key-of-eve"), {"Origin": "https://evil.org"}
METADATA, LIVE, LOGGING = "/v2", "/v2/health/live", "/v2/logging"
STATISTICS = "/v2/models/stats"

Call: TypeAlias = tuple[str, str, dict[str, str], int, str]


OTHER = "the-key-of-another-server"


def calls(admin_key: str) -> list[Call]:
    """Of a server that other machines reach: what is asked over HTTP and gRPC with which headers,
    and what comes back."""
    admin = {"admin-key": admin_key, "triton-grpc-protocol-admin-key": admin_key}
    return [
        (METADATA, "ServerMetadata", {}, 401, "UNAUTHENTICATED"),
        (METADATA, "ServerMetadata", authorized("wrong"), 401, "UNAUTHENTICATED"),
        (METADATA, "ServerMetadata", {"authorization": "Basic key-of-ann"}, 401, "UNAUTHENTICATED"),
        (METADATA, "ServerMetadata", EVE, 401, "UNAUTHENTICATED"),  # whose key was revoked
        (METADATA, "ServerMetadata", ANN, 200, "OK"),
        (METADATA, "ServerMetadata", authorized(admin_key), 200, "OK"),
        (METADATA, "ServerMetadata", {**ANN, **EVIL}, 403, "PERMISSION_DENIED"),
        (METADATA, "ServerMetadata", EVIL, 401, "UNAUTHENTICATED"),
        (STATISTICS, "ModelStatistics", {}, 401, "UNAUTHENTICATED"),
        (STATISTICS, "ModelStatistics", ANN, 200, "OK"),
        (STATISTICS, "ModelStatistics", authorized(make_pass(admin_key, 60)), 200, "OK"),
        (METADATA, "ServerMetadata", authorized(make_pass(admin_key, -1)), 401, "UNAUTHENTICATED"),
        (METADATA, "ServerMetadata", authorized(make_pass(OTHER, 60)), 401, "UNAUTHENTICATED"),
        (LOGGING, "LogSettings", authorized(make_pass(admin_key, 60)), 403, "PERMISSION_DENIED"),
        (LOGGING, "LogSettings", ANN, 403, "PERMISSION_DENIED"),
        (LOGGING, "LogSettings", admin, 401, "UNAUTHENTICATED"),
        (LOGGING, "LogSettings", ANN | admin, 200, "OK"),
        ("/internal/authorize", "LogSettings", ANN, 404, "PERMISSION_DENIED"),
        ("/v2/repository/index", "RepositoryIndex", ANN, 405, "PERMISSION_DENIED"),
    ]


def test_calls_and_answers(exposed: Asked) -> None:
    with over_grpc(exposed) as triton:
        for path, call, headers, status, code in calls(exposed.admin_key):
            found = ask(exposed, path, headers), asked_over_grpc(triton, call, headers)
            assert found == (status, code), (path, call, headers)
        # By the API keys: a page has none, whatever name points here.
        assert ask(exposed, METADATA, {**ANN, "Host": "triton.example.org"}) == 200
        # By its origin, which may ask.
        assert ask(exposed, METADATA, {**ANN, "Origin": PAGE}) == 200
        # By a browser, which can then ask its user for a key.
        assert ask(exposed, "/", {}) == ask(exposed, "/page/main.js", {}) == 200
        assert ask(exposed, "/page/served.json", {}) == ask(exposed, "/page/live.json", {}) == 401
        # By load balancers, which have no key.
        assert ask(exposed, LIVE, {}) == ask(exposed, "/v2/health/ready", {}) == 200
        refusal = exposed.ask("GET", METADATA)[2]
        assert json.loads(refusal)["error"].startswith("no valid API key; send the header")
        # By one that asks too often.
        assert [ask(exposed, METADATA, authorized("key-of-often")) for _ in range(9)][-1] == 429
        hurried = authorized("key-of-oft-grpc")
        codes = [asked_over_grpc(triton, "ServerMetadata", hurried) for _ in range(9)]
        assert codes[0] == "OK" and codes[-1] == "UNAVAILABLE"


def test_refusals_over_grpc_are_counted_once_and_as_the_callers(exposed: Asked) -> None:
    def count(protocol: str, *reasons: str) -> list[int]:
        connection = exposed.connection(exposed.metrics_port)
        text = exposed.ask("GET", "/metrics", None, ANN, connection)[2].decode()
        name = 'bundle_refused_total{reason="%s",protocol="%s"} '
        return [int(text.split(name % (each, protocol))[1].split()[0]) for each in reasons]

    def count_all() -> tuple[list[int], list[int]]:
        over_grpc = count("grpc", "no_key", "too_large", "encoding", "busy", "rate")
        return over_grpc, count("http", "no_key", "rate")

    with over_grpc(exposed) as triton:

        def ask_model(key: str, size: int = 100, **options: Any) -> None:
            message = pb.ModelInferRequest(model_name="picture", raw_input_contents=[bytes(size)])
            metadata = [("authorization", f"Bearer {key}")]
            with contextlib.suppress(grpc.RpcError):
                triton.ModelInfer(message, metadata=metadata, timeout=60, **options)

        # Once the log has told of this one, it has told of what was refused in tests before.
        (earlier,) = count("grpc", "encoding")
        ask_model("key-of-ann", compression=grpc.Compression.Gzip)
        wait_until(lambda: count("grpc", "encoding")[0] > earlier, "Envoy's log")
        (no_key, too_large, encoding, busy, rate), over_http = count_all()
        ask_model("wrong")
        with contextlib.suppress(grpc.RpcError):
            triton.ServerLive(pb.ServerLiveRequest(), timeout=60)
        ask_model("key-of-ann", 70_000_000)
        ask_model("key-of-ann", compression=grpc.Compression.Gzip)
        for _ in range(9):
            ask_model("key-of-oft-grpc")
    expected = [no_key + 2, too_large + 1, encoding + 1, busy]
    wait_until(lambda: count_all()[0][:4] == expected, f"counts of {expected}", 30)
    assert count("grpc", "rate")[0] > rate and count_all()[1] == over_http


def test_who_speaks_no_tls_is_told_to(exposed: Asked) -> None:
    for port in (exposed.http_port, exposed.metrics_port):
        for path in ("/v2/health/live", "/metrics", "/internal/authorize"):
            plain = http.client.HTTPConnection("localhost", port, timeout=60)
            status, _, body = exposed.ask("GET", path, headers=ANN, connection=plain)
            assert status == 400 and "use https://" in json.loads(body)["error"]
    with over_grpc(replace(exposed, tls=None)) as triton, pytest.raises(grpc.RpcError) as refused:
        triton.ServerLive(pb.ServerLiveRequest(), timeout=60)
    assert "this port speaks TLS" in refused.value.details()


def test_keys_come_and_go_without_a_restart(exposed: Asked) -> None:
    key = authorized(add(exposed.key_file, Client("fay")))
    assert ask(exposed, "/v2", key) == 200
    revoke(exposed.key_file, "fay")
    assert ask(exposed, "/v2", key) == 401


def test_a_broken_or_lost_file_of_keys(exposed: Asked) -> None:
    """Lets nobody in whom the last good one kept out; and make's own commands go on."""
    before, admin = exposed.key_file.read_text(), authorized(exposed.admin_key)
    exposed.key_file.write_text(f"{before}kim\n")
    assert ask(exposed, "/v2", ANN) == ask(exposed, "/v2", admin) == 200
    exposed.key_file.unlink()
    assert (ask(exposed, "/v2", ANN), ask(exposed, "/v2", admin)) == (401, 200)
    exposed.key_file.write_text(before)
    assert ask(exposed, "/v2", ANN) == 200


def test_a_stream_ends_with_its_key_and_each_message_counts(exposed: Asked) -> None:
    """Those beyond the rate wait. What follows the key's end is not answered."""
    key, answers = add(exposed.key_file, Client("gil", 20.0)), queue.Queue[Any]()
    file = np.frombuffer(picture(), np.uint8)[None]
    tensor = tritonclient.grpc.InferInput("INPUT", list(file.shape), "UINT8")
    tensor.set_data_from_numpy(file)
    with grpc_client(exposed) as client:
        client.start_stream(
            lambda result, error: answers.put(error or result), headers=authorized(key)
        )
        for _ in range(25):
            client.async_stream_infer("picture", [tensor])
        found = [answers.get(timeout=60) for _ in range(25)]
        assert [str(each) for each in found if isinstance(each, Exception)] == []
        connection = exposed.connection(exposed.metrics_port)
        headers = authorized("key-of-ann")
        counted = exposed.ask("GET", "/metrics", headers=headers, connection=connection)[2]
        assert b'door_requests_total{client="gil"} 25' in counted
        revoke(exposed.key_file, "gil")
        client.async_stream_infer("picture", [tensor])
        refused = answers.get(timeout=60)
        assert refused.status() == "StatusCode.UNAUTHENTICATED"
        assert "no valid API key" in refused.message()
        client.stop_stream(cancel_requests=True)


@contextlib.contextmanager
def grpc_client(server: Asked) -> Iterator[Any]:
    target = f"localhost:{server.grpc_port}"
    certificates = str(server.tls)
    with tritonclient.grpc.InferenceServerClient(
        target, ssl=True, root_certificates=certificates
    ) as client:
        yield client


def test_metrics_know_the_client(exposed: Asked) -> None:
    assert ask(exposed, "/metrics", {}, exposed.metrics_port) == 401
    headers = authorized("key-of-ann")
    connection = exposed.connection(exposed.metrics_port)
    status, _, body = exposed.ask("GET", "/metrics", headers=headers, connection=connection)
    assert status == 200 and b"nv_inference_count" in body
    assert b'door_requests_total{client="ann"}' in body


def test_a_preflight_from_a_page_that_may(exposed: Asked) -> None:
    """A browser sends no key with it."""
    headers = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    status, answered, _ = exposed.ask("OPTIONS", "/classify", headers=headers | {"Origin": PAGE})
    assert status == 204 and answered["access-control-allow-origin"] == PAGE
    assert answered["access-control-allow-headers"] == "authorization"
    assert exposed.ask("OPTIONS", "/classify", headers=headers | EVIL)[0] == 403
    assert exposed.ask("OPTIONS", "/classify", headers={"Origin": PAGE})[0] == 401


# Whether the door may be opened at all


def test_beyond_this_machine_only_with_tls_and_keys(folder: Path, tmp_path: Path) -> None:
    for bind in ("127.0.0.1", "::1", "localhost", "127.8.0.1"):
        assert Exposure(bind).problem() is None
        assert Exposure(bind).certificate is Exposure(bind).api_keys is None
    for bind in ("0.0.0.0", "::", "192.168.1.4", "server"):
        given = Exposure(bind, tls_folder=folder, key_file=folder / "api.keys")
        assert given.problem() is None and given.certificate and given.api_keys
        assert "make keys ADD=" in (replace(given, key_file=tmp_path).problem() or "")
        assert "cert.pem cannot be read" in (replace(given, tls_folder=tmp_path).problem() or "")
        assert Exposure(bind, insecure=True).problem() is None
        assert Exposure(bind, insecure=True).certificate is None
    assert "cannot be read" in (Exposure(certified=True, tls_folder=tmp_path).problem() or "")


def test_a_door_that_must_not_open_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bundle_door", "--run-dir", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--address", "0.0.0.0"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1 and ended.stderr.startswith("error: BIND=0.0.0.0 opens")
    assert len(ended.stderr.splitlines()) == 1 and not [*tmp_path.iterdir()]


def test_a_certificate_is_made_once_and_for_its_names(tmp_path: Path) -> None:
    assert certificate.ensure(tmp_path, ["server.example.org", "192.168.1.4"])
    made = (tmp_path / CERTIFICATE).read_bytes()
    assert not certificate.ensure(tmp_path, ["server.example.org", "192.168.1.4"])
    assert (tmp_path / CERTIFICATE).read_bytes() == made
    assert {"localhost", "server.example.org", "192.168.1.4"} < {
        *certificate.names_in(tmp_path / CERTIFICATE)
    }
    assert (tmp_path / PRIVATE_KEY).stat().st_mode & 0o777 == 0o600
    assert certificate.ensure(tmp_path, ["other.example.org"], "10.0.0.7")
    assert not certificate.ensure(tmp_path, ["other.example.org"], "10.0.0.8")
    assert "10.0.0.7" in certificate.names_in(tmp_path / CERTIFICATE)
    (tmp_path / certificate.NAMES).unlink()  # somebody's own
    assert not certificate.ensure(tmp_path, ["third.example.org"])


def test_keys_are_read_and_mistakes_named(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("ann aa\nbob bb 0.5\n")
    assert read(file) == {"aa": Client("ann", None), "bb": Client("bob", 0.5)}
    file.write_text("ann aa\nbob bb often\n")
    with pytest.raises(BadKeys, match="line 2"):
        read(file)


def test_keys_are_added_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "build" / "keys"
    key = add(file, Client("ann", 2.5))
    add(file, Client("bob"))
    assert read(file)[hash_key(key)] == Client("ann", 2.5)
    assert key not in file.read_text()
    with pytest.raises(BadKeys, match="ann already has a key"):
        add(file, Client("ann"))
    for name in ("ann smith", "admin"):
        with pytest.raises(BadKeys, match="is not a valid name"):
            add(file, Client(name))
    revoke(file, "ann")
    assert list(read(file).values()) == [Client("bob")]
    with pytest.raises(BadKeys, match="ann has no key"):
        revoke(file, "ann")


def test_each_picture_counts_for_the_rate(exposed: Asked) -> None:
    """In a form, and in a batch."""
    part = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nx\r\n'
    form = part * 20 + b"--b--", {"content-type": "multipart/form-data; boundary=b"}
    tensor = {"name": "INPUT", "datatype": "UINT8", "shape": [4, 1], "data": [255, 255, 255, 255]}
    batch = json.dumps({"inputs": [tensor]}).encode(), dict[str, str]()
    one = json.dumps({"inputs": [tensor | {"shape": [1, 4]}]}).encode(), dict[str, str]()
    for path, (body, headers), wait in (
        ("/classify?model=picture", form, range(101, 201)),
        ("/v2/models/picture/infer", batch, range(11, 41)),
        ("/v2/models/picture/infer", one, range(1, 11)),
    ):
        name = f"ivy-{wait.start}"  # one that is revoked and comes again still owes
        key = authorized(add(exposed.key_file, Client(name, 0.1)))
        status, _, answer = exposed.ask("POST", path, body, headers | key)
        assert status in (200, 400) and b"may send" not in answer
        status, answered, answer = exposed.ask("GET", "/v2", headers=key)
        assert status == 429 and b"each picture or row counts as one" in answer
        assert int(answered["retry-after"]) in wait
        revoke(exposed.key_file, name)


@pytest.mark.parametrize("way", ["single", "odd", "stream"])
def test_each_row_counts_for_the_rate_over_grpc(exposed: Asked, way: str) -> None:
    assert ask(exposed, "/page/served.json", ANN) == 200  # now it knows which models take batches
    key = authorized(add(exposed.key_file, Client(f"joy-{way}", 0.1)))
    files = np.full((4, 10), 255, np.uint8)
    tensor = tritonclient.grpc.InferInput("INPUT", list(files.shape), "UINT8")
    tensor.set_data_from_numpy(files)
    answers = queue.Queue[Any]()

    def wait_s() -> int:
        status, answered, _ = exposed.ask("GET", "/v2", headers=key)
        return int(answered["retry-after"]) if status == 429 else 0

    with grpc_client(exposed) as client, open_channel(exposed) as channel:
        if way == "stream":
            client.start_stream(lambda result, error: answers.put(error or result), headers=key)
            client.async_stream_infer("picture", [tensor])
            answers.get(timeout=60)
            client.stop_stream(cancel_requests=True)
        elif way == "single":
            client.infer("picture", [tensor], headers=key)
        else:  # numbers under the input's and the shape's: to Triton, fields that it does not know
            asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[files.tobytes()])
            named = pb.ModelInferRequest.InferInputTensor(
                name="INPUT", datatype="UINT8", shape=files.shape
            )
            input_ = b"\x1d\x01\0\0\0" + named.SerializeToString()
            message = b"\x28\x01\x2a" + bytes([len(input_)]) + input_ + asked.SerializeToString()
            channel.unary_unary(INFER)(message, metadata=[*key.items()], timeout=60)
    wait_until(lambda: wait_s() > 10, "the batch to be charged")
    revoke(exposed.key_file, f"joy-{way}")


def test_a_bucket_fills_with_time() -> None:
    bucket = Bucket(2, now=0)
    assert [bucket.wait_s(now) for now in (0, 0)] == [0, 0]
    assert bucket.wait_s(0) == 0.5
    assert bucket.wait_s(0.5) == 0 and bucket.wait_s(0.5) > 0
    bucket.charge(3)
    assert bucket.wait_s(0.5) == pytest.approx(2.0) and bucket.wait_s(2.5) == 0
    slow = Bucket(0.1, now=0)
    assert slow.wait_s(0) == 0 and slow.wait_s(5) == pytest.approx(5)


def test_a_key_has_its_share_of_messages_that_stop(exposed: Asked) -> None:
    """Another one is answered meanwhile, at the same address."""
    ended = threading.Event()

    def message() -> Iterator[bytes]:
        yield bytes(60_000_000)
        ended.wait()

    assert exposed.tls
    credentials = grpc.ssl_channel_credentials(exposed.tls.read_bytes())
    sizes = [("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(f"localhost:{exposed.grpc_port}", credentials, sizes) as channel:
        begun = channel.stream_unary(INFER)
        key = [("authorization", "Bearer key-of-ann")]
        kept = [begun.future(message(), metadata=key) for _ in range(9)]
        wait_until(lambda: any(call.done() for call in kept), "one to be refused")
        large = request_of(b"\xff\xd8" + bytes(1_000_000))
        admin = [("authorization", f"Bearer {exposed.admin_key}")]
        assert stub(channel).ModelInfer(large, metadata=admin, timeout=60).outputs
        ended.set()
        for call in kept:
            call.cancel()


def test_a_balancer_that_stops_needs_no_key_to_end_its_streams(exposed: Asked) -> None:
    """But its name, which nobody else knows."""
    asked = {name: queue.SimpleQueue[Any]() for name in ("abc", "def")}

    def begin(triton: Any, name: str) -> Any:
        sent = [("authorization", "Bearer key-of-ann"), (BALANCER_HEADER, name)]
        return triton.ModelStreamInfer(iter(asked[name].get, None), metadata=sent, timeout=60)

    def answer(name: str) -> str:
        asked[name].put(request_of(picture()))
        answered: str = next(streams[name]).infer_response.model_name
        return answered

    with over_grpc(exposed) as triton:
        streams = {name: begin(triton, name) for name in asked}
        assert {answer(name) for name in asked} == {"picture"}
        assert exposed.ask("DELETE", f"{BALANCED}abc")[0] == 200
        with pytest.raises(grpc.RpcError, match="open the stream again") as ended:
            next(streams["abc"])
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert answer("def") == "picture"
        for each in asked.values():
            each.put(None)
