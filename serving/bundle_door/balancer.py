"""Envoy before many servers: one on each node of a swarm.

    python -m bundle_door.balancer --servers tasks.bundle_server --run-dir /tmp

It ends when it is told to (SIGTERM), once no request is in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path

from bundle_door import balancing, envoy_lines, envoy_process, http1
from bundle_door.answers import Answer
from bundle_door.envoy_lines import Line
from bundle_door.http1 import Incoming
from bundle_door.limits import MEGABYTE, Limits
from bundle_door.measures import PROMETHEUS, Counter, Gauge, text
from bundle_door.request_log import TEXT, RequestLog
from bundle_serving import local_http, sockets
from bundle_serving.exposure import Exposure, of_environment

# Within the container's stop_grace_period; streams that go on longer are cut off.
DRAIN_S = 20.0
# So long at least connections that are used get the answer that ends them.
LEAVE_S = 1.0
# Of Envoy's own statistics.
SERVERS = r"^cluster\.http\.membership_(healthy|total)"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", required=True, help="the name of all their addresses")
    parser.add_argument("--run-dir", required=True, type=Path)
    options = parser.parse_args(argv)
    exposure = of_environment()
    # That nobody has a key is the doors' to say.
    if problem := exposure.without_certificate():
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return asyncio.run(serve(options.servers, options.run_dir, exposure))


async def serve(servers: str, run_dir: Path, exposure: Exposure) -> int:
    envoy_process.raise_file_limit()
    folder = sockets.folder(run_dir)
    limits = Limits()
    if megabytes := os.environ.get("MAX_BODY_MB"):
        limits = Limits(body_bytes=int(megabytes) * MEGABYTE)
    config = balancing.config(servers, "0.0.0.0", folder, limits, exposure)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    refusals, log = Refusals(folder), RequestLog(os.environ.get("LOG_FORMAT") or TEXT)

    async def read(envoy: asyncio.StreamReader) -> None:
        await envoy_lines.read(envoy, (log.of_envoy, refusals.count))

    async with (
        http1.server(refusals.metrics, folder / sockets.HTTP),
        envoy_process.running(config, run_dir / "envoy.yaml", folder, read) as ended,
    ):
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            stopping.cancel()
            print("error: Envoy exited; its last lines are above", file=sys.stderr)
            return 1
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await envoy_process.drain(folder)
                await asyncio.sleep(LEAVE_S)
                while await envoy_process.in_flight(folder):
                    await asyncio.sleep(0.05)
    return 0


class Refusals:
    """What no server has answered, counted by the reasons that Envoy gives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refused = Counter(
            "bundle_balancer_refused_total",
            "Requests that the balancer itself answered, because no server did",
            ("protocol", "status", "reason"),
        )

    def count(self, line: Line) -> None:
        # With details in braces, of which there may be any number.
        reason, _, _ = (line.details or "").partition("{")
        self._refused.add(line.port, line.grpc_status or str(line.status), reason)

    async def metrics(self, incoming: Incoming) -> Answer:
        ready = Gauge("bundle_balancer_servers", "As the balancer sees them", ("state",))
        with contextlib.suppress(OSError, TimeoutError):
            admin = self._folder / sockets.ENVOY_ADMIN
            stats = await local_http.ask(admin, "GET", f"/stats?filter={SERVERS}")
            for state, count in re.findall(rb"membership_(\w+): (\d+)", stats):
                ready.set(int(count), state.decode())
        body = text([self._refused, ready]).encode()
        return Answer(body, headers={"content-type": PROMETHEUS})


if __name__ == "__main__":
    sys.exit(main())
