"""What the door costs: the same pictures through it and around it, in alternating rounds.

    .venv/bin/python -m benchmark.door photo.jpg

Of the server of plain processes that runs, or of another one (--run-dir) that make did not start.
Around the door: Triton's own socket, and over HTTP only if Triton was started with one
(--triton-http). Beside requests a second: processor time a request, of each process.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmark.load import (
    RAW,
    Connect,
    Question,
    connect_over,
    infer_path,
    measure_cost,
    over_grpc,
    over_http,
)
from bundle_serving.process import sockets
from bundle_serving.protocol.over_socket import Connection
from scripts.base.errors import run_guarded
from scripts.server.running import ensure_server
from scripts.stacks import state


@dataclass
class Measured:
    per_second: list[float] = field(default_factory=list)
    # Milliseconds of processor time a request, by process.
    cpu_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def of_the_server(run_dir: Path) -> list[psutil.Process]:
    """Triton, its stubs, Envoy, the HTTP service: all were started with the folder's name."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            own = process.pid == os.getpid()
            named = str(run_dir.absolute())
            if not own and any(named in argument for argument in process.cmdline()):
                found.append(process)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("picture", type=Path)
    add("--run-dir", type=Path, help="of another server, on these ports")
    add("--http-port", type=int, default=8000)
    add("--grpc-port", type=int, default=8001)
    add("--triton-http", help="the socket of Triton's own HTTP server")
    add("--concurrency", type=int, default=4)
    add("--rounds", type=int, default=6)
    add("--seconds", type=float, default=4)
    options = parser.parse_args(argv)
    if not options.picture.is_file():
        parser.error(f"{options.picture} is no file; name a JPEG of the usual size")
    picture = options.picture.read_bytes()
    run_dir, http, grpc = find_server(options)
    ways = dict(ways_to(run_dir, http, grpc, options.triton_http))
    processes = of_the_server(run_dir)
    results = {name: Measured() for name in ways}
    for _ in range(options.rounds):
        for name, connect in ways.items():
            question = Question(name, connect, [picture])
            took, spent = measure_cost(
                question, options.concurrency, options.seconds, lambda: processes
            )
            results[name].per_second.append(took.images_per_second)
            for process, cost in spent.items():
                results[name].cpu_ms[process].append(cost)
    for name, result in results.items():
        costs = {process: statistics.median(cost) for process, cost in result.cpu_ms.items()}
        shown = "  ".join(f"{process} {cost:.2f}" for process, cost in costs.items())
        rate = statistics.median(result.per_second)
        print(f"{name:18} {rate:7.1f}/s  {sum(costs.values()):6.2f} ms = {shown}")
    return 0


def find_server(options: argparse.Namespace) -> tuple[Path, str, str]:
    """Its folder, and where it is asked over HTTP and over gRPC."""
    if options.run_dir:
        ports = options.http_port, options.grpc_port
        http, grpc = (f"localhost:{port}" for port in ports)
        return options.run_dir, http, grpc
    up = ensure_server()
    return state.RUN / up.side, str(up.http), str(up.grpc)


def ways_to(
    run_dir: Path, http: str, grpc: str, triton_http: str | None
) -> Iterator[tuple[str, Connect]]:
    yield "gRPC, around", over_grpc(sockets.target(sockets.folder(run_dir)))
    yield "gRPC, through", over_grpc(grpc)
    if triton_http:
        yield (
            "HTTP, around",
            connect_over(lambda: Connection(Path(triton_http)), infer_path(), RAW),
        )
    yield "HTTP, through", over_http(http, infer_path())


if __name__ == "__main__":
    sys.exit(run_guarded(main))
