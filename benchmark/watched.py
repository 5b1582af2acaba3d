"""What it costs to be watched: the live version in two servers, one without the steps' reports, of
which metrics, waterfalls and traces are made, one with them and with one request in a hundred
traced; asked in alternating rounds.

    python -m benchmark.watched --image mug.jpg
"""

import statistics
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmark.load import Question, infer_path, measure_cost, over_grpc, over_http, processes_of
from bundle_serving.process import sockets, traces
from scripts.artefacts.exporting import start
from scripts.base.paths import ROOT
from scripts.measuring.confidence import Estimate
from scripts.recipes import pipelines
from scripts.repository import live
from scripts.stacks import temporary


def main(image: Path, concurrency: int = 4, rounds: int = 20, seconds: float = 4) -> int:
    with ExitStack() as stack:
        collector = stack.enter_context(taker_of_spans())
        environments = {
            "off": {sockets.STEPS_VARIABLE: "", traces.ENDPOINT: ""},
            "on": {traces.ENDPOINT: collector, traces.RATIO: "0.01"},
        }
        addresses = {
            name: stack.enter_context(
                temporary.triton(
                    name,
                    live.REPOSITORY,
                    ROOT / "build" / "watched" / f"{name}.log",
                    pipelines.main().ensemble,
                    environment=environment,
                )
            )
            for name, environment in environments.items()
        }
        for protocol in ("gRPC", "HTTP"):
            compare(protocol, addresses, image.read_bytes(), concurrency, rounds, seconds)
    return 0


def compare(
    protocol: str,
    addresses: dict[str, tuple[str, str]],
    picture: bytes,
    concurrency: int,
    rounds: int,
    seconds: float,
) -> None:
    rates: dict[str, list[float]] = {name: [] for name in addresses}
    costs: dict[str, list[float]] = {name: [] for name in addresses}
    for number in range(rounds):
        # The second one finds the machine warmer.
        for name in sorted(addresses, reverse=bool(number % 2)):
            http, grpc = addresses[name]
            connect = over_grpc(grpc) if protocol == "gRPC" else over_http(http, infer_path())
            question = Question(name, connect, [picture])
            took, spent = measure_cost(question, concurrency, seconds, partial(processes_of, http))
            rates[name].append(took.images_per_second)
            costs[name].append(sum(spent.values()))
    for what, unit, found in (("throughput", "/s", rates), ("processor time", " ms", costs)):
        before, after = (statistics.median(found[name]) for name in ("off", "on"))
        print(
            f"{protocol}  {what:14} off {before:7.2f}{unit}  on {after:7.2f}{unit}  "
            f"ratio {Estimate.ratio(found['on'], found['off'])}",
            flush=True,
        )


@contextmanager
def taker_of_spans() -> Iterator[str]:
    """Where they can be sent, as to a collector."""

    class Taking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")  # of a body in chunks nothing was read
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


if __name__ == "__main__":
    start(main)
