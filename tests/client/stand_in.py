"""A server on the loopback that answers in Triton's words, as slowly or wrongly as it is told."""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

LIMIT = 5_000_000


@dataclass
class StandIn:
    """The picture sent says what to do: b"slow", b"bad", b"silent", b"gone", b"drip", b"cut",
    b"last" or b"busy", which is answered at the third time.

    Any other picture is the label of the answer; one of more than LIMIT bytes is refused before
    it is read, as a proxy does it. Over GET this is a web server that knows a few pages.
    """

    url: str = ""
    main: str = ""  # the main pipeline, if it is another than usual
    at_once: int = 0
    most_at_once: int = 0
    refused: int = 0
    retry_after: str = ""  # what it says where it is busy
    lock: threading.Lock = field(default_factory=threading.Lock)
    pages: dict[str, bytes] = field(default_factory=dict)
    drip: threading.Event = field(default_factory=threading.Event)

    def count(self, change: int) -> None:
        with self.lock:
            self.at_once += change
            self.most_at_once = max(self.at_once, self.most_at_once)

    def is_busy(self) -> bool:
        self.refused = (self.refused + 1) % 3
        return self.refused > 0


def handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            if size > LIMIT:
                self.close_connection = True
                self.send(413, b"<html>too large</html>")
                # To hang up on a client that still sends would take the answer from it.
                self.rfile.read(size)
                return
            body = self.rfile.read(size)
            picture = body[int(self.headers["Inference-Header-Content-Length"]) :]
            stand_in.count(+1)
            if picture == b"slow":
                time.sleep(0.3)
            if picture == b"silent":
                stand_in.drip.wait(20)
            stand_in.count(-1)
            if "/models/embedding/" in self.path:
                self.embed(picture[4:])  # BYTES say first how long they are
            elif (stand_in.main or "ensemble_python_resnet50") not in self.path:
                self.answer(404, {"error": "Request for unknown model: 'x' is not found"})
            elif picture == b"bad":
                message = "in ensemble 'ensemble_python_resnet50', not a picture; send one"
                self.answer(400, {"error": message})
            elif picture == b"busy" and stand_in.is_busy():
                self.answer(503, {"error": "the server is busy: 9 requests are in flight; wait"})
            elif picture == b"gone":
                self.close_connection = True
            elif picture in (b"drip", b"cut"):
                self.do_half(picture == b"drip")
            else:
                label = f"0.75:3:{picture.decode()}"
                output = {"name": "OUTPUT", "datatype": "BYTES", "shape": [1, 1], "data": [label]}
                self.answer(200, {"outputs": [output]})
                # As a server does that is tired of an idle connection: without a word.
                self.close_connection = picture == b"last"

        def embed(self, picture: bytes) -> None:
            """As the service does it: a refusal is no error of the request."""
            refusal = "not a picture; send one" if picture == b"bad" else ""
            vector = [0.0, 0.0] if refusal else [0.6, 0.8]
            outputs = [
                {"name": "embedding", "datatype": "FP32", "shape": [1, 2], "data": vector},
                {"name": "error", "datatype": "BYTES", "shape": [1, 1], "data": [refusal]},
                {"name": "network", "datatype": "BYTES", "shape": [1, 1], "data": ["small"]},
            ]
            self.answer(200, {"outputs": outputs})

        def do_GET(self) -> None:
            if self.path == "/v2":
                self.answer(200, {"name": stand_in.main or "triton"})
                return
            if self.path in ("/drip", "/cut"):
                self.do_half(self.path == "/drip")
                return
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/picture")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            page = stand_in.pages.get(self.path)
            self.send(404 if page is None else 200, page or b"no")

        def do_half(self, drips: bool) -> None:
            """Of an answer, which goes on for ever, or ends."""
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            while drips and not stand_in.drip.wait(0.05):
                self.wfile.write(b".")
            self.close_connection = True

        def answer(self, status: int, content: object) -> None:
            self.send(status, json.dumps(content).encode())

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status == 503 and stand_in.retry_after:
                self.send_header("Retry-After", stand_in.retry_after)
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            # A client that goes away in the middle is what some tests are about.
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
