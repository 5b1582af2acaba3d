"""Holds the ports of containers for their servers, one of which follows the other: what comes goes
on, byte for byte, to the one that serves (bundle_serving.process.relayed).

    python -m bundle_door.relay --folder /run/ports --run-dir /tmp

A container cannot hand over the ports that Docker has opened for it; and one that shares another's
network is not started again after a reboot by most engines before Docker 29.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from bundle_door.front import envoy_process
from bundle_door.front.envoy import Config, action, extension, pipe, seconds, threshold
from bundle_door.limits import Limits
from bundle_door.settings import PROCESSES, count_processes
from bundle_serving.process import relayed, sockets
from bundle_serving.protocol import local_http

PORTS = {relayed.HTTP: 8000, relayed.GRPC: 8001, relayed.METRICS: 8002}
# Of two servers, while one follows the other.
MOST_CONNECTIONS = 2 * Limits.connections
# What a connection may have waiting here in each direction, and all of them.
CONNECTION_BYTES, HEAP_BYTES = 32 << 10, 256 << 20
# A connection waits for a door that is started again: each pause is drawn at random, so for about
# ten seconds.
TRIES = 20
# A server that is told to end with this gets so long to answer.
DRAIN_S = 30.0
ACTIVE = r"/stats?filter=^cluster\..*upstream_cx_active"


def build_config(shared: Path, folder: Path, ports: Mapping[str, int] = PORTS) -> Config:
    heap = "envoy.resource_monitors.fixed_heap"
    return {
        "admin": {"address": pipe(folder / sockets.ENVOY_ADMIN)},
        "static_resources": {
            "listeners": [build_listener(name, port) for name, port in ports.items()],
            "clusters": [build_cluster(name, shared / relayed.SERVING / name) for name in ports],
        },
        "overload_manager": {
            "resource_monitors": [
                extension(
                    heap,
                    "resource_monitors.fixed_heap.v3.FixedHeapConfig",
                    max_heap_size_bytes=HEAP_BYTES,
                ),
                extension(
                    "envoy.resource_monitors.global_downstream_max_connections",
                    "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    max_active_downstream_connections=MOST_CONNECTIONS,
                ),
            ],
            "actions": [action("stop_accepting_connections", threshold(heap, 0.95))],
        },
    }


def build_listener(name: str, port: int) -> Config:
    passing = extension(
        "envoy.filters.network.tcp_proxy",
        "filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix=name,
        cluster=name,
        idle_timeout=seconds(0),  # the server's to end
        max_connect_attempts=TRIES,
        backoff_options={"base_interval": seconds(0.1), "max_interval": seconds(1)},
    )
    return {
        "name": name,
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        "per_connection_buffer_limit_bytes": CONNECTION_BYTES,
        "filter_chains": [{"filters": [passing]}],
    }


def build_cluster(name: str, socket: Path) -> Config:
    """Each connection says first from which address it comes."""
    plain = extension(
        "envoy.transport_sockets.raw_buffer", "transport_sockets.raw_buffer.v3.RawBuffer"
    )
    thresholds = {"max_connections": MOST_CONNECTIONS, "max_pending_requests": MOST_CONNECTIONS}
    return {
        "name": name,
        "connect_timeout": seconds(2),
        "per_connection_buffer_limit_bytes": CONNECTION_BYTES,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": pipe(socket)}}]}],
        },
        "transport_socket": extension(
            "envoy.transport_sockets.upstream_proxy_protocol",
            "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
            config={"version": "V2"},
            transport_socket=plain,
        ),
        "circuit_breakers": {"thresholds": [thresholds]},
    }


async def serve(shared: Path, run_dir: Path) -> int:
    envoy_process.raise_file_limit()
    folder = sockets.folder(run_dir)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def show(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            sys.stdout.buffer.write(line)

    config, file = build_config(shared, folder), run_dir / "envoy.yaml"
    # As many as the door behind it has.
    threads = count_processes(os.environ.get(PROCESSES, ""))
    async with envoy_process.running(config, file, folder, show, threads) as ended:
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            stopping.cancel()
            return 1
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while await count_connections(folder):
                    await asyncio.sleep(0.05)
    return 0


async def count_connections(folder: Path) -> int:
    text = await local_http.ask(folder / sockets.ENVOY_ADMIN, "GET", ACTIVE)
    return sum(int(active) for active in re.findall(rb": (\d+)", text))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, type=Path, help="the one that servers share")
    parser.add_argument("--run-dir", required=True, type=Path)
    options = parser.parse_args(argv)
    return asyncio.run(serve(options.folder, options.run_dir))


if __name__ == "__main__":
    sys.exit(main())
