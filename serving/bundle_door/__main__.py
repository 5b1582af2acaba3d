"""Opens the door before a Triton that listens on the Unix sockets of a run folder.

    python -m bundle_door --run-dir build/run --admin-key-file key

It ends when it is told to (SIGTERM), and with an error when any part of it does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from bundle_door import key_file
from bundle_door.door import DoorError, Settings, serve
from bundle_door.front.envoy import Ports, Traces
from bundle_door.key_file import BadKeys
from bundle_door.limits import MEGABYTE, Limits
from bundle_door.watching.request_log import FORMATS, TEXT
from bundle_serving import guard, traces
from bundle_serving.exposure import Exposure
from bundle_serving.sockets import NotPrivate
from bundle_serving.traces import Collector


def main(argv: list[str] | None = None) -> int:
    try:
        uvloop.run(serve(settings(arguments().parse_args(argv))))
    except (DoorError, NotPrivate, guard.NoKey, BadKeys, OSError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


def settings(options: argparse.Namespace) -> Settings:
    exposure = Exposure(
        bind=options.bind or options.address,
        insecure=options.insecure == "1",
        certified=bool(options.tls_cert),
        tls_folder=options.tls_folder,
        key_file=options.api_keys,
        hosts=options.allowed_hosts,
        origins=options.cors_origins,
    )
    if problem := exposure.problem():
        raise DoorError(problem)
    if exposure.api_keys:
        key_file.read(exposure.api_keys)
    return Settings(
        options.run_dir,
        Ports(options.address, options.http_port, options.grpc_port, options.metrics_port),
        guard.read(options.admin_key_file) if options.admin_key_file else None,
        Limits(
            body_bytes=options.max_body_mb * MEGABYTE,
            in_flight=options.max_in_flight,
            connections=options.max_connections,
            answer_s=options.answer_timeout_s,
            idle_s=options.idle_timeout_s,
        ),
        exposure,
        Path(options.repository) if options.repository else None,
        options.log_format,
        of_traces(),
        options.state_folder,
        options.relay_folder,
    )


def of_traces() -> Traces | None:
    if not (endpoint := os.environ.get(traces.ENDPOINT)):
        return None
    try:
        ratio = float(os.environ.get(traces.RATIO) or traces.USUAL_RATIO)
        return Traces(Collector.parse(endpoint), ratio)
    except ValueError as fault:
        raise DoorError(str(fault)) from None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bundle_door", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--run-dir", required=True, type=Path, help="where the server runs")
    add("--address", default="127.0.0.1")
    add("--http-port", default=8000, type=int)
    add("--grpc-port", default=8001, type=int)
    add("--metrics-port", default=8002, type=int)
    add("--repository", default="", help="the models' folder, which the page reads")
    add("--admin-key-file", type=Path, help="without it, what the admin key opens stays closed")
    for name, kind, default in SETTINGS:
        # A setting that is empty is one that is not given.
        add(f"--{name}", type=kind, default=os.environ.get(as_variable(name)) or default)
    return parser


def as_variable(name: str) -> str:
    return name.upper().replace("-", "_")


def several(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def one_of(*known: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text} is not {' or '.join(known)}")
        return text

    return read


# What may be set by option, or by a variable of the same name: BIND=0.0.0.0.
SETTINGS: list[tuple[str, Callable[[str], object], object]] = [
    ("bind", str, None),
    ("insecure", str, ""),
    # Whatever it says: TLS also where nobody but this machine can ask.
    ("tls-cert", str, ""),
    ("tls-folder", Path, Exposure.tls_folder),
    ("api-keys", Path, Exposure.key_file),
    ("allowed-hosts", several, ""),
    ("cors-origins", several, ""),
    ("max-body-mb", int, Limits.body_bytes // MEGABYTE),
    ("max-in-flight", int, Limits.in_flight),
    ("max-connections", int, Limits.connections),
    ("answer-timeout-s", float, Limits.answer_s),
    ("idle-timeout-s", float, Limits.idle_s),
    ("state-folder", Path, None),
    ("relay-folder", Path, None),
    ("log-format", one_of(*FORMATS), TEXT),
]


if __name__ == "__main__":
    sys.exit(main())
