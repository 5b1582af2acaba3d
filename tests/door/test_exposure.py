"""Who may ask: keys and their rates, TLS, pages of other origins, names that point here."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from bundle_door.exposure import Exposure
from bundle_door.key_file import BadKeys, Client, add, hashed, read, revoke
from bundle_door.keys import Bucket
from bundle_serving.kserve import pb, stub
from tests.door.servers import KEY, Behind, behind_the_door
from tests.project import ROOT

PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def api_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "api_keys"
    file.write_text(f"ann {hashed('key-of-ann')}\nbob {hashed('key-of-bob')} 2\n")
    return file


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.fixture(scope="module")
def exposed(
    tmp_path_factory: pytest.TempPathFactory, api_keys: Path, certificate: tuple[Path, Path]
) -> Iterator[Behind]:
    cert, key = certificate
    options = [
        *("--address", "127.0.0.1", "--bind", "0.0.0.0", "--api-keys", str(api_keys)),
        *("--tls-cert", str(cert), "--tls-key", str(key), "--cors-origins", PAGE),
    ]
    run_dir = tmp_path_factory.mktemp("exposed") / "run"
    with behind_the_door(run_dir, models=["picture"], options=options, tls=cert) as started:
        yield started


def authorized(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def ask(server: Behind, path: str, headers: dict[str, str], port: int | None = None) -> int:
    return server.ask("GET", path, headers=headers, connection=server.connection(port))[0]


@contextlib.contextmanager
def over_grpc(server: Behind) -> Iterator[Any]:
    assert server.tls
    credentials = grpc.ssl_channel_credentials(server.tls.read_bytes())
    with grpc.secure_channel(f"localhost:{server.grpc_port}", credentials) as channel:
        yield stub(channel)


@pytest.mark.parametrize(
    "path, headers, status",
    [
        ("/v2", {}, 401),
        ("/v2", authorized("wrong"), 401),
        ("/v2", {"Authorization": "Basic key-of-ann"}, 401),
        ("/v2", authorized("key-of-ann"), 200),
        ("/v2", {**authorized("key-of-ann"), "Host": "triton.example.org"}, 200),
        ("/v2/health/ready", {}, 200),
        ("/v2/health/live", {}, 200),
        ("/v2/models/stats", authorized("key-of-ann"), 403),
        ("/v2/models/stats", {**authorized("key-of-ann"), "admin-key": KEY}, 200),
        ("/v2/models/stats", {"admin-key": KEY}, 401),
        ("/internal/authorize", authorized("key-of-ann"), 404),
        ("/v2", {**authorized("key-of-ann"), "Origin": "https://evil.example.org"}, 403),
        ("/v2", {**authorized("key-of-ann"), "Origin": PAGE}, 200),
    ],
)
def test_over_http(exposed: Behind, path: str, headers: dict[str, str], status: int) -> None:
    assert ask(exposed, path, headers) == status


def test_over_grpc(exposed: Behind) -> None:
    with over_grpc(exposed) as triton:
        for key, code in (("", "UNAUTHENTICATED"), ("wrong", "UNAUTHENTICATED")):
            with pytest.raises(grpc.RpcError) as refusal:
                triton.ServerLive(
                    pb.ServerLiveRequest(), metadata=[("authorization", f"Bearer {key}")]
                )
            assert refusal.value.code().name == code
        metadata = [("authorization", "Bearer key-of-ann")]
        assert triton.ServerLive(pb.ServerLiveRequest(), metadata=metadata).live
        with pytest.raises(grpc.RpcError) as refusal:
            triton.RepositoryIndex(pb.RepositoryIndexRequest(), metadata=metadata)
        assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_plain_http_is_not_answered(exposed: Behind) -> None:
    plain = http.client.HTTPConnection("localhost", exposed.http_port)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        exposed.ask("GET", "/v2/health/live", connection=plain)


def test_a_rate(exposed: Behind) -> None:
    statuses = [ask(exposed, "/v2", authorized("key-of-bob")) for _ in range(10)]
    assert statuses[:2] == [200, 200] and 429 in statuses


def test_keys_come_and_go_without_a_restart(exposed: Behind, api_keys: Path) -> None:
    before = api_keys.read_text()
    assert ask(exposed, "/v2", authorized("key-of-eve")) == 401
    api_keys.write_text(f"{before}eve {hashed('key-of-eve')}\n")
    assert ask(exposed, "/v2", authorized("key-of-eve")) == 200
    api_keys.write_text(before)
    assert ask(exposed, "/v2", authorized("key-of-eve")) == 401


def test_metrics_know_the_client(exposed: Behind) -> None:
    assert ask(exposed, "/metrics", {}, exposed.metrics_port) == 401
    headers = authorized("key-of-ann")
    connection = exposed.connection(exposed.metrics_port)
    status, _, body = exposed.ask("GET", "/metrics", headers=headers, connection=connection)
    assert status == 200 and b"nv_inference_count" in body
    assert b'door_requests_total{client="ann"}' in body


def test_a_preflight_from_a_page_that_may(exposed: Behind) -> None:
    headers = {**authorized("key-of-ann"), "Origin": PAGE, "Access-Control-Request-Method": "POST"}
    status, answered, _ = exposed.ask("OPTIONS", "/classify", headers=headers)
    assert status == 204 and answered["access-control-allow-origin"] == PAGE


# Of a server for this machine alone: by default.


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("server:8000", 200),
        ("app.localhost", 200),
        ("rebound.example.org", 403),
        ("rebound.example.org:8000", 403),
        ("localhost.example.org", 403),
        ("127.0.0.1.example.org", 403),
    ],
)
def test_hosts(server: Behind, host: str, status: int) -> None:
    assert server.ask("GET", "/v2", headers={"Host": host})[0] == status


@pytest.mark.parametrize("port", ["http_port", "metrics_port"])
def test_origins(server: Behind, port: str) -> None:
    number = getattr(server, port)
    path = "/metrics" if port == "metrics_port" else "/v2"
    for origin in ("https://example.org", "null", "http://localhost", "http://localhost:1"):
        connection = http.client.HTTPConnection("localhost", number)
        assert server.ask("GET", path, headers={"Origin": origin}, connection=connection)[0] == 403
    own = {"Origin": f"http://localhost:{server.http_port}"}
    connection = http.client.HTTPConnection("localhost", server.http_port)
    status, headers, _ = server.ask("GET", "/v2", headers=own, connection=connection)
    assert status == 200 and "access-control-allow-origin" not in headers


def test_a_preflight_is_refused(server: Behind) -> None:
    headers = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    assert server.ask("OPTIONS", "/classify", headers=headers)[0] == 403


# Whether the door may be opened at all


def test_beyond_this_machine_only_with_tls_and_keys(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for bind in ("127.0.0.1", "::1", "localhost", "127.8.0.1"):
        assert Exposure(bind).problem() is None
    for bind in ("0.0.0.0", "::", "192.168.1.4", "server"):
        assert "INSECURE=1" in (Exposure(bind).problem() or "")
        assert "INSECURE=1" in (Exposure(bind, file, file).problem() or "")
        assert "INSECURE=1" in (Exposure(bind, api_keys=file).problem() or "")
        assert Exposure(bind, file, file, file).problem() is None
        assert Exposure(bind, insecure=True).problem() is None
    assert "both" in (Exposure("127.0.0.1", tls_cert=file).problem() or "")
    assert "not there" in (Exposure("127.0.0.1", api_keys=tmp_path / "no").problem() or "")


def test_a_door_that_must_not_open_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bundle_door", "--run-dir", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--address", "0.0.0.0"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1 and ended.stderr.startswith("error: BIND=0.0.0.0 opens")
    assert len(ended.stderr.splitlines()) == 1 and not [*tmp_path.iterdir()]


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
    assert read(file)[hashed(key)] == Client("ann", 2.5)
    assert key not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadKeys, match="ann has a key already"):
        add(file, Client("ann"))
    with pytest.raises(BadKeys, match="is no name"):
        add(file, Client("ann smith"))
    revoke(file, "ann")
    assert list(read(file).values()) == [Client("bob")]
    with pytest.raises(BadKeys, match="ann has no key"):
        revoke(file, "ann")


def test_a_bucket_fills_with_time() -> None:
    bucket = Bucket(2, now=0)
    assert [bucket.wait_s(now) for now in (0, 0)] == [0, 0]
    assert bucket.wait_s(0) == 0.5
    assert bucket.wait_s(0.5) == 0 and bucket.wait_s(0.5) > 0
    slow = Bucket(0.1, now=0)
    assert slow.wait_s(0) == 0 and slow.wait_s(5) == pytest.approx(5)
