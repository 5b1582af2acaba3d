"""Holds the ports of containers for their servers, one of which follows the other: what comes goes
on, byte for byte, to the one that serves (bundle_serving.process.relayed).

    python -m bundle_door.relay --folder /run/ports --run-dir /tmp

A container cannot hand over the ports that Docker has opened for it; and one that shares another's
network is not started again after a reboot by most engines before Docker 29.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path

from bundle_door.front import envoy, envoy_process
from bundle_door.limits import Limits
from bundle_door.settings import PROCESSES, count_processes
from bundle_serving.process import relayed, sockets

PORTS = {relayed.HTTP: 8000, relayed.GRPC: 8001, relayed.METRICS: 8002}
# Of two servers, while one follows the other.
MOST_CONNECTIONS = 2 * Limits.connections
# A server that is told to end with this gets so long to answer.
DRAIN_S = 30.0
# What it hands on.
ACTIVE = r"^cluster\..*upstream_cx_active"


async def serve(shared: Path, run_dir: Path) -> int:
    envoy_process.raise_file_limit()
    folder = sockets.folder(run_dir)
    stop = envoy_process.listen_for_stop()

    async def show(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            sys.stdout.buffer.write(line)

    config = envoy.build_relay(PORTS, shared / relayed.SERVING, folder, MOST_CONNECTIONS)
    # As many as the door behind it has.
    threads = count_processes(os.environ.get(PROCESSES, ""))
    async with envoy_process.running(config, run_dir, show, threads) as ended:
        if await envoy_process.has_ended_before(stop, ended):
            return 1
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DRAIN_S):
                await envoy_process.wait_until_none(folder, ACTIVE)
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", required=True, type=Path, help="the one that servers share")
    parser.add_argument("--run-dir", required=True, type=Path)
    options = parser.parse_args(argv)
    return asyncio.run(serve(options.folder, options.run_dir))


if __name__ == "__main__":
    sys.exit(main())
