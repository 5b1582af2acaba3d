import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_client import AsyncClient, Client, ServerUnreachable
from bundle_client.server import PROTOCOLS, Protocol, server
from bundle_client.transport.connection import over_grpc


@pytest.mark.parametrize(
    ("given", "protocol", "url"),
    [
        (None, "http", "localhost:8000"),
        ("", "grpc", "localhost:8001"),
        ("triton", "http", "triton:8000"),
        ("triton:9000", "grpc", "triton:9000"),
        ("http://triton:9000/", "http", "triton:9000"),
        ("grpc://triton", "grpc", "triton:8001"),
        ("[::1]:9000", "http", "[::1]:9000"),
        ("https://triton", "http", "triton:8000"),
        ("grpcs://triton", "grpc", "triton:8001"),
    ],
)
def test_addresses(given: str | None, protocol: Protocol, url: str) -> None:
    found = server(given, protocol, 1)
    assert found.url == url and found.tls == ("s://" in (given or ""))
    assert not found.tls or server(given, protocol, 1, ca_file="ca.pem").tls


@pytest.mark.parametrize(
    "given",
    ["ftp://triton", "grpc://triton", "triton:x", "triton:99999", ":8000", "triton/x", "a..b"],
)
def test_what_is_no_address_for_http(given: str) -> None:
    with pytest.raises(ValueError, match="address"):
        server(given, "http", 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_listens(protocol: Protocol, closed_port: int) -> None:
    url = f"127.0.0.1:{closed_port}"
    with Client(url, protocol) as client, pytest.raises(ServerUnreachable, match="refused"):
        client.classify(b"picture")

    async def ask() -> None:
        async with AsyncClient(url, protocol) as client:
            with pytest.raises(ServerUnreachable, match="refused"):
                await client.classify(b"picture")

    asyncio.run(ask())


def test_a_name_that_does_not_resolve() -> None:
    with (
        Client("no-such-host.invalid:8000") as client,
        pytest.raises(ServerUnreachable, match="no-such-host"),
    ):
        client.classify(b"picture")


def test_grpc_where_http_is_spoken(stand_in: object) -> None:
    url = stand_in.url  # type: ignore[attr-defined]
    with (
        Client(url, "grpc", timeout=5) as client,
        pytest.raises(ServerUnreachable, match="does not answer as Triton does over gRPC"),
    ):
        client.classify(b"picture")


@pytest.mark.parametrize("timeout", [0, -1, 4_294_968, float("inf"), float("nan")])
def test_what_is_no_timeout(timeout: float) -> None:
    with pytest.raises(
        ValueError, match="timeout must be more than 0 seconds, and at most 2147483"
    ):
        server("triton", "http", timeout)


def test_grpc_trusts_what_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (company := tmp_path / "company.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(company))
    grpcs_own = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    monkeypatch.delenv(grpcs_own, raising=False)
    for trusted in (str(company), None):
        over_grpc(home := Mock(), server("grpcs://localhost", "grpc", 1))
        assert home.InferenceServerClient.call_args.kwargs["root_certificates"] == trusted
        monkeypatch.setenv(grpcs_own, "another.pem")
