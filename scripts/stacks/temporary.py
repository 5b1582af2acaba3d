"""Servers for the duration of a `with` block, on free ports, that leave nothing behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import processes
from bundle_serving.process.server_log import explain_end, first_error
from bundle_serving.process.start_server import STOP_S
from scripts.base import interrupts
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON
from scripts.base.ports import free_ports
from scripts.recipes.layout import CPU
from scripts.stacks import admin_key

START_TIMEOUT_S = 120

# Not the mark of `make up`'s server, whose leftovers `make down` removes.
SHM_PREFIX = f"triton_temporary_{os.getpid()}_"


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    reason_to_wait: Callable[[], str | None],
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Starts a server and yields its process id once it answers; ends it and everything that it
    started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        # Ctrl-C reaches it through us, once. Nor would it go on, where nobody knows of it, when
        # this command is killed.
        ends = processes.end_with_parent(signal.SIGTERM)
        server = interrupts.start_apart((*ends, *command), file, environment or {})
    try:
        until_it_answers(
            name,
            reason_to_wait,
            lambda: server.poll() is None,
            lambda: log.read_text(errors="replace"),
        )
        yield server.pid
    finally:
        _end(server)


def until_it_answers(
    name: str,
    reason_to_wait: Callable[[], str | None],
    alive: Callable[[], bool],
    log: Callable[[], str],
) -> None:
    began = time.monotonic()
    while reason := reason_to_wait():
        is_alive = alive()
        if not is_alive or time.monotonic() > began + START_TIMEOUT_S:
            cause = (first_error(log()) or reason) if is_alive else explain_end(log())
            raise UserError(f"{name} does not start: {cause}", "make doctor shows the usual causes")
        time.sleep(0.1)


def _end(server: subprocess.Popen[bytes]) -> None:
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(server.pid).children(recursive=True)
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    server.wait()


@contextmanager
def triton(
    name: str,
    repository: Path,
    log: Path,
    pipeline: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, str]]:
    """The local flavour's server on a repository, behind its own door; yields its HTTP and gRPC
    addresses."""
    http, grpc, metrics = free_ports(3)
    address = f"127.0.0.1:{http}"
    with TemporaryDirectory() as run:
        command: list[str | Path] = [PYTHON, "-m", "bundle_keeper", "--run-dir", run]
        command += ["--repository", repository, "--config-name", CPU.config]
        command += ["--load-model", pipeline]
        command += ["--http-port", str(http), "--grpc-port", str(grpc)]
        command += ["--metrics-port", str(metrics), "--shm-prefix", SHM_PREFIX + f"{http}_"]
        command += ["--admin-key-file", admin_key.ensure()]
        # What is measured or checked there is computed.
        environment = {"CACHE_MB": "", **(environment or {})}
        reason_to_wait = partial(reason_not_to_trust, address, pipeline)
        with running(name, command, log, reason_to_wait, environment):
            yield address, f"127.0.0.1:{grpc}"
