"""Opens the door before a Triton that listens on the Unix sockets of a run folder.

    python -m bundle_door --run-dir build/run --admin-key-file key

It ends when it is told to (SIGTERM), and with an error when any part of it does.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from bundle_door.access import key_file
from bundle_door.access.key_file import BadKeys
from bundle_door.door import DoorError, serve
from bundle_door.given import Given, Traces
from bundle_door.http_process import serve_further
from bundle_door.limits import MEGABYTE, Limits, room_for
from bundle_door.served import is_one_of_several
from bundle_door.settings import SETTINGS, Setting, read_several
from bundle_door.watching.captures import CERTIFICATE
from bundle_serving.process import guard
from bundle_serving.process.exposure import Exposure
from bundle_serving.process.sockets import NotPrivate


def main(argv: list[str] | None = None) -> int:
    try:
        options = arguments().parse_args(argv)
        given = read_options(options)
        uvloop.run(serve_further(given, options.process) if options.process else serve(given))
    except (DoorError, NotPrivate, guard.NoKey, BadKeys, OSError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


def read_options(options: argparse.Namespace) -> Given:
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
    collector = options.otel_exporter_otlp_endpoint
    return Given(
        options.run_dir,
        options.address,
        {"http": options.http_port, "grpc": options.grpc_port, "metrics": options.metrics_port},
        guard.read(options.admin_key_file) if options.admin_key_file else None,
        Limits(
            body_bytes=options.max_body_mb * MEGABYTE,
            in_flight_bytes=room_for(options.max_body_mb * MEGABYTE),
            in_flight=options.max_in_flight,
            answer_s=options.answer_timeout_s,
        ),
        exposure,
        repository=Path(options.repository) if options.repository else None,
        log_format=options.log_format,
        traces=Traces(collector, options.otel_traces_sampler_arg) if collector else None,
        state_folder=options.state_folder or options.run_dir,
        relay_folder=options.relay_folder,
        processes=options.door_processes,
        keep=options.keep,
        keep_bytes=options.keep_mb * MEGABYTE,
        keep_days=options.keep_days,
        keep_for=options.admin_key_file.parent / CERTIFICATE if options.admin_key_file else None,
        has_others=is_one_of_several(),
    )


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
    add("--process", default=0, type=int, help="the number of this one, of several")
    given = [(each.name, as_type(each), each.default) for each in SETTINGS]
    for name, kind, default in (*ABOUT_THE_MACHINE, *given):
        # A setting that is empty is one that is not given.
        option = f"--{name.lower().replace('_', '-')}"
        add(option, type=kind, default=os.environ.get(name) or default)
    return parser


def as_type(setting: Setting) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            return setting.read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text} is not {setting.wanted}") from None

    return read


# What may be set as well by option, or by a variable: BIND=0.0.0.0.
ABOUT_THE_MACHINE: list[tuple[str, Callable[[str], object], object]] = [
    ("BIND", str, None),
    ("INSECURE", str, ""),
    # Whatever it says: TLS also where nobody but this machine can ask.
    ("TLS_CERT", str, ""),
    ("TLS_FOLDER", Path, Exposure.tls_folder),
    ("API_KEYS", Path, Exposure.key_file),
    ("ALLOWED_HOSTS", read_several, ""),
    ("ANSWER_TIMEOUT_S", float, Limits.answer_s),
    ("STATE_FOLDER", Path, None),
    ("RELAY_FOLDER", Path, None),
]


if __name__ == "__main__":
    sys.exit(main())
