"""A server to harm: on the live version, with processes, ports, a disk and shared memory of its
own, and gone at the end."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmark.torture.subject import Subject
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes
from bundle_serving.process.start_server import STOP_S
from scripts.base.paths import PYTHON
from scripts.base.ports import free_ports
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.stacks import admin_key, temporary

DISK_MB, SHARED_MB = 64, 896
OTHERS_S = 300

# What is mounted is seen by this server alone, and goes with it.
MOUNTED = f"""
mount -t tmpfs -o mode=0700,size={DISK_MB}m disk "$0" &&
mount -t tmpfs -o mode=1777,size={SHARED_MB}m shared /dev/shm && exec "$@"
"""


@dataclass(frozen=True)
class Own:
    """What is mounted for this server alone, as seen from here."""

    disk: Path
    shared_memory: Path


@contextmanager
def serve_own(log: Path) -> Iterator[tuple[Subject, Own | None]]:
    """The server, and its own mounts where the kernel allows them."""
    http, grpc, metrics = free_ports(3)
    address, main = f"127.0.0.1:{http}", pipelines.main().ensemble
    with TemporaryDirectory() as run:
        keeper: list[str | Path] = [PYTHON, "-m", "bundle_keeper", "--run-dir", run]
        keeper += ["--repository", live.REPOSITORY, "--config-name", CPU.config]
        # With a file of its own for it, which no command locks, it loads what the live server does.
        keeper += ["--load-model", main, "--hands-off", Path(run) / "hands-off"]
        keeper += ["--shm-prefix", f"triton_torture_{os.getpid()}_"]
        keeper += ["--http-port", str(http), "--grpc-port", str(grpc)]
        keeper += ["--metrics-port", str(metrics), "--admin-key-file", admin_key.ensure()]
        apart = namespaces()
        command = [*apart, "sh", "-c", MOUNTED, run] if apart else []
        command += [PYTHON, "-m", "bundle_keeper.afresh", "--go-on", *keeper]
        with temporary.running(
            "the server", command, log, lambda: reason_not_to_trust(f"http://{address}", main)
        ) as root:
            seen = Path(f"/proc/{root}/root")
            disk = seen / run.lstrip("/")
            _wait_for_others(disk)
            own = Own(disk, seen / "dev/shm") if apart else None
            subject = Subject(root, address, f"127.0.0.1:{grpc}", main)
            try:
                yield subject, own
            finally:
                if subject.root != root:
                    left = psutil.Process(subject.root)
                    left.terminate()
                    left.wait(STOP_S)


def _wait_for_others(run: Path) -> None:
    """The main pipeline answers first, and the others are loaded meanwhile."""
    began = time.monotonic()
    while keeper_notes.read_coming(run) and time.monotonic() < began + OTHERS_S:
        time.sleep(0.1)


def namespaces() -> list[str | Path]:
    """What a command is begun with to be alone with its mounts; empty where that is forbidden."""
    own = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "-Ur", "--mount"]
    try:
        tried = subprocess.run([*own, "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True)
    except FileNotFoundError:
        return []
    return [] if tried.returncode else [*own]
