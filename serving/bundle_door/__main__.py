"""Opens the door before a Triton that listens on the Unix sockets of a run folder.

    python -m bundle_door --run-dir build/run --admin-key-file key

It ends when it is told to (SIGTERM), and with an error when any part of it does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import uvloop

from bundle_door.door import DoorError, Settings, serve
from bundle_door.envoy import Ports
from bundle_door.limits import Limits
from bundle_serving import guard
from bundle_serving.sockets import NotPrivate


def main(argv: list[str] | None = None) -> int:
    options = arguments().parse_args(argv)
    try:
        key = guard.read(options.admin_key_file) if options.admin_key_file else None
        ports = Ports(options.address, options.http_port, options.grpc_port, options.metrics_port)
        uvloop.run(serve(Settings(options.run_dir, ports, key, Limits())))
    except (DoorError, NotPrivate, guard.NoKey, OSError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bundle_door", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--run-dir", required=True, type=Path, help="where the server runs")
    add("--address", default="127.0.0.1")
    add("--http-port", default=8000, type=int)
    add("--grpc-port", default=8001, type=int)
    add("--metrics-port", default=8002, type=int)
    add("--admin-key-file", type=Path, help="without it, what the admin key opens stays closed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
