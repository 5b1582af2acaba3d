"""Envoy before many servers: one on each node of a swarm.

    python -m bundle_door.balancer --servers tasks.bundle_server --run-dir /tmp

It ends when it is told to (SIGTERM), once no request is in flight.
"""

import argparse
import asyncio
import contextlib
import os
import re
import secrets
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

from bundle_door.access.certificate import OF_SERVERS
from bundle_door.answers import Answer
from bundle_door.front import envoy, envoy_process
from bundle_door.front.envoy_process import REQUESTS, Line
from bundle_door.limits import MEGABYTE, Limits
from bundle_door.settings import TEXT
from bundle_door.watching.measures import PROMETHEUS, Counter, Gauge, text
from bundle_door.watching.request_log import RequestLog
from bundle_door.wire import http1
from bundle_door.wire.http1 import Incoming
from bundle_serving.address import BALANCED, Address
from bundle_serving.process import sockets
from bundle_serving.process.exposure import Exposure, of_environment
from bundle_serving.protocol import local_http

# The doors' ports, and the balancer's own.
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
# Within the container's stop_grace_period.
DRAIN_S = 20.0
# How often servers are told to end its streams, and how long each has to answer.
TELL_S, TOLD_S = 1.0, 2.0
# So long at least connections that are used get the answer that ends them.
LEAVE_S = 1.0
# Of Envoy's own statistics, and of what it says of its servers.
SERVERS = r"^cluster\.http\.membership_(healthy|total)"
ADDRESSES = rb"(?m)^http::(\S+?)::hostname::"


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
    name = secrets.token_hex(16)
    others = os.environ.get(OF_SERVERS, "").split()
    config = envoy.build_balancer(servers, PORTS, "0.0.0.0", folder, limits, exposure, name, others)
    stop = envoy_process.listen_for_stop()
    refusals, log = Refusals(folder), RequestLog(os.environ.get("LOG_FORMAT") or TEXT)

    async def read(envoy: asyncio.StreamReader) -> None:
        await envoy_process.read_lines(envoy, (log.of_envoy, refusals.count))

    async with (
        http1.server(refusals.metrics, folder / sockets.HTTP),
        envoy_process.running(config, run_dir, read) as ended,
    ):
        if await envoy_process.has_ended_before(stop, ended):
            print("error: Envoy exited; its last lines are above", file=sys.stderr)
            return 1
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DRAIN_S):
                await envoy_process.set_runtime(folder, envoy.STOPPING, 100)
                await envoy_process.drain(folder)
                telling = asyncio.create_task(tell_servers(folder, exposure, name))
                await asyncio.sleep(LEAVE_S)
                await envoy_process.wait_until_none(folder, REQUESTS)
                await local_http.ask(folder / sockets.ENVOY_ADMIN, "POST", "/drain_listeners")
                await envoy_process.wait_until_none(folder, REQUESTS)
                telling.cancel()
    return 0


async def tell_servers(folder: Path, exposure: Exposure, name: str) -> None:
    """That they are to end this balancer's streams, between two messages; again and again, for one
    may have been on its way."""

    def tell(server: str) -> None:
        address = replace(Address.parse(server), certificate=exposure.certificate)
        question = urllib.request.Request(f"{address.url}{BALANCED}{name}", method="DELETE")
        with contextlib.suppress(OSError):
            address.open(question, TOLD_S).close()

    while True:
        with contextlib.suppress(OSError):  # a busy Envoy: the next time
            clusters = await local_http.ask(folder / sockets.ENVOY_ADMIN, "GET", "/clusters")
            servers = [found.decode() for found in re.findall(ADDRESSES, clusters)]
            await asyncio.gather(*(asyncio.to_thread(tell, server) for server in servers))
        await asyncio.sleep(TELL_S)


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
        with contextlib.suppress(OSError):
            admin = self._folder / sockets.ENVOY_ADMIN
            stats = await local_http.ask(admin, "GET", f"/stats?filter={SERVERS}")
            for state, count in re.findall(rb"membership_(\w+): (\d+)", stats):
                ready.set(int(count), state.decode())
        body = text([self._refused, ready]).encode()
        return Answer(body, headers={"content-type": PROMETHEUS})


if __name__ == "__main__":
    sys.exit(main())
