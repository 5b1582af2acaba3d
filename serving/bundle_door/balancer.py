"""Envoy before many servers: one on each node of a swarm.

    python -m bundle_door.balancer --servers tasks.bundle_server --run-dir /tmp

It ends when it is told to (SIGTERM), once no request is in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from bundle_door import balancing, envoy_process
from bundle_door.limits import MEGABYTE, Limits
from bundle_serving import sockets
from bundle_serving.exposure import Exposure, of_environment

DRAIN_S = 20.0


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
    async with envoy_process.running(config, run_dir / "envoy.yaml", folder, passed_on) as ended:
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            stopping.cancel()
            print("error: Envoy exited; its last lines are above", file=sys.stderr)
            return 1
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await envoy_process.drain(folder)
                while await envoy_process.in_flight(folder):
                    await asyncio.sleep(0.05)
    return 0


async def passed_on(lines: asyncio.StreamReader) -> None:
    async for line in lines:
        sys.stdout.buffer.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
