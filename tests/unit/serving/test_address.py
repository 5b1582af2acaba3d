import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bundle_serving.address import Address, read_refusal


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.handle_request).start()
        address = Address("127.0.0.1", server.server_port)
        with address.open(urllib.request.Request(address.url), timeout=10) as answer:
            assert answer.status == 204


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "row 1 has\\n3 numbers;"}', "row 1 has 3 numbers"),
        (b"Bad\nGateway", "HTTP 502: Bad Gateway"),
        (b'["error"]', 'HTTP 502: ["error"]'),
        (b"\xff", "HTTP 502: \ufffd"),
    ],
)
def test_a_refusal_is_one_line(body: bytes, said: str) -> None:
    assert read_refusal(502, body) == said
