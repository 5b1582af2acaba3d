"""Who may ask a server that is for this machine alone, as by default."""

import http.client

import pytest

from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked

pytestmark = on_a_gpu_too


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("server:8000", 200),
        ("app.localhost", 200),
        ("App.LocalHost", 200),
        ("rebound.example.org", 403),
        ("rebound.example.org:8000", 403),
        ("localhost.example.org", 403),
        ("127.0.0.1.example.org", 403),
    ],
)
def test_hosts(server: Asked, host: str, status: int) -> None:
    assert server.ask("GET", "/v2", headers={"Host": host})[0] == status


@pytest.mark.parametrize("port", ["http_port", "metrics_port"])
def test_origins(server: Asked, port: str) -> None:
    number = getattr(server, port)
    path = "/metrics" if port == "metrics_port" else "/v2"
    for origin in ("https://example.org", "null", "http://localhost", "http://localhost:1"):
        connection = http.client.HTTPConnection("localhost", number)
        assert server.ask("GET", path, headers={"Origin": origin}, connection=connection)[0] == 403
    own = {"Origin": f"http://localhost:{server.http_port}"}
    connection = http.client.HTTPConnection("localhost", server.http_port)
    status, headers, _ = server.ask("GET", "/v2", headers=own, connection=connection)
    assert status == 200 and "access-control-allow-origin" not in headers


def test_a_preflight_is_refused(server: Asked) -> None:
    headers = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "POST"}
    assert server.ask("OPTIONS", "/classify", headers=headers)[0] == 403
