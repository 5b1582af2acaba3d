"""A page of another origin, in a real browser, against a server on localhost."""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked
from tests.door.test_life import INFER, JPEG, RAW, executed
from tests.project import wait_until
from tests.screens.browser import headless

# What a page can try: to read with and without the browser's leave, to ask and to end the server as
# a form may do it, to have an answer taken for a picture or a program, and to unload a model.
PAGE = """<!doctype html><title>elsewhere</title><body><script>
const server = "http://localhost:HTTP_PORT", metrics = "http://localhost:METRICS_PORT/metrics";
const outcome = {};
const read = (name, url, options) => fetch(url, options)
  .then(answer => answer.text().then(text => { outcome[name] = answer.type + " " + text; }))
  .catch(() => { outcome[name] = "refused"; });
const shown = (name, tag, url) => new Promise(done => {
  const element = document.createElement(tag);
  element.onload = () => { outcome[name] = "shown"; done(); };
  element.onerror = () => { outcome[name] = "refused"; done(); };
  element.src = url;
  document.body.append(element);
});
const post = body => ({method: "POST", mode: "no-cors", body});
const picture = new Uint8Array([255, 216, 112, 105, 99]);
Promise.all([
  read("read", server + "/v2"),
  read("read metrics", metrics),
  read("read blindly", server + "/v2", {mode: "no-cors"}),
  read("ask", server + "/v2/models/picture/infer", {method: "POST", body: picture}),
  read("ask blindly", server + "/v2/models/picture/infer", post(picture)),
  read("classify blindly", server + "/classify?model=picture", post(picture)),
  read("end", server + "/v2/models/picture/infer", post("[".repeat(200000))),
  read("unload", server + "/v2/repository/models/picture/unload", post("")),
  shown("picture", "img", server + "/v2"),
  shown("program", "script", server + "/openapi.json"),
]).then(() => fetch("/outcome", {method: "POST", body: JSON.stringify(outcome)}));
</script></body>"""


@contextlib.contextmanager
def elsewhere(page: str) -> Iterator[tuple[str, Queue[dict[str, str]]]]:
    """Another origin, and what its page says."""
    outcomes: Queue[dict[str, str]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(page.encode())

        def do_POST(self) -> None:
            outcomes.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(b"")

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/", outcomes
        server.shutdown()


def is_idle(server: Asked) -> bool:
    """What others asked before, and hung up on, may still be computed."""
    before = executed(server)
    time.sleep(1)
    return executed(server) == before


@on_a_gpu_too
def test_a_page_from_elsewhere_reaches_nothing(server: Asked, tmp_path: Path) -> None:
    page = PAGE.replace("HTTP_PORT", str(server.http_port))
    page = page.replace("METRICS_PORT", str(server.metrics_port))
    wait_until(lambda: is_idle(server), "nothing to be computed any more")
    before = executed(server)
    with elsewhere(page) as (url, outcomes):
        browser = subprocess.Popen([*headless(tmp_path), url], stderr=subprocess.DEVNULL)
        try:
            found = outcomes.get(timeout=120)
        finally:
            browser.kill()
            browser.wait()
    opaque = {name for name, result in found.items() if result == "opaque "}
    assert opaque == {"read blindly", "ask blindly", "classify blindly", "end", "unload"}
    assert {found[name] for name in found.keys() - opaque} == {"refused"}, found
    assert executed(server) == before
    assert server.ask("POST", INFER, JPEG, RAW)[0] == 200
