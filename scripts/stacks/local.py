"""Flavour local: the steps and the server as plain processes in the project's environment."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bundle_serving import keeper_notes, leftovers, processes, sockets
from bundle_serving.start_server import STOP_S, StartError, libpython_folder
from scripts import bootstrap
from scripts.base import interrupts, lock, ports
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import MARK, PYTHON, ROOT
from scripts.base.shared import is_shared
from scripts.repository import live
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, certificates, exposure, state, temporary
from scripts.stacks.state import State
from scripts.storage import key_files, on_demand
from scripts.storage.location import from_settings

RUN = ROOT / "build" / "run"
LOG = RUN / "server.log"

# Triton alone opens some hundreds of files, and each client one more.
FILES = 1024

# Identifies this project's server processes and their shared memory.
SHM_PREFIX = f"triton_bundle_{MARK}_"

# What a change of makes another server.
PROGRAMS = (".py", ".html", ".css", ".js", ".svg", ".yaml")

LAYERS = {
    "export": "export",
    "detection": "export",
    "sounds.export": "export",
    "segmentation": "export",
    "places": "export",
    "adopt": "export",
    "quantise": "export",
    "engine": "serve",
    "gate": "serve",
    "complete": "serve",
    "callables": "serve",
}


class LocalStack:
    flavour = "local"
    in_place = False
    has_door = True
    run_dir = str(RUN)  # writable, and programs may run from it
    log_hint = f"the whole log is in {LOG.relative_to(ROOT)}"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def prepare(self) -> None:
        if not bootstrap.can_serve():
            raise UserError(
                "without Docker, the server needs Python 3.11 or 3.12",
                "install one and select it: make clean && make up PYTHON=python3.12",
            )
        try:
            libpython_folder()
        except StartError as fault:
            raise UserError.of(fault) from None
        _require_files()
        bootstrap.ensure("serve")
        admin_key.ensure()
        certificates.place(self._settings)
        certificates.make(self._settings)

    def run_step(self, step: str, *arguments: str | Path) -> None:
        bootstrap.ensure(LAYERS[step])
        run_here(step, *arguments)

    def version(self) -> str:
        """The server program's version, for the fingerprint."""
        return _tree_hash(ROOT / "serving")

    def start(self, wanted: State) -> None:
        ports.require_free(self._settings.bind, self._settings.ports)
        RUN.mkdir(parents=True, exist_ok=True)
        if LOG.exists():
            LOG.replace(LOG.with_suffix(".log.1"))
        keeper_notes.forget(RUN)
        command: list[str | Path] = [PYTHON, "-m", "bundle_keeper.afresh", "--go-on"]
        command += [PYTHON, "-m", "bundle_keeper", "--run-dir", RUN]
        command += ["--hands-off", lock.hands_off_file(), "--shm-prefix", SHM_PREFIX]
        command += ["--admin-key-file", admin_key.PATH, "--address", self._settings.bind]
        for name, port in self._settings.ports.items():
            command += [f"--{name.replace('_', '-').lower()}", str(port)]
        if location := from_settings(self._settings):
            on_demand.hand_over_keys(self._settings)
            command += ["--repository", str(location), "--s3-credentials", key_files.HANDED]
        else:
            command += ["--repository", live.REPOSITORY]
        environment = exposure.environment(self._settings)
        environment["CACHE_MB"] = self._settings["CACHE_MB"]
        mode = 0o640 if is_shared() else 0o600
        opener = partial(os.open, mode=mode)  # for what clients send is in it
        with open(LOG, "a", opener=opener) as log:  # which the door keeps short
            server = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in this terminal must not reach the server
            )
        replace(wanted, pid=server.pid, started=processes.began(server.pid)).save()

    def temporary(self, repository: Path, log: Path) -> AbstractContextManager[tuple[str, str]]:
        """A server for the duration of a block; yields its HTTP and gRPC addresses."""
        return temporary.triton("the server", repository, log)

    def room(self) -> int | None:
        """Bytes of memory that the server may still use."""
        return int(psutil.virtual_memory().available)

    def kept(self) -> dict[str, Any]:
        """The keeper's notes."""
        return keeper_notes.read(RUN)

    def alive(self) -> bool:
        return _server() is not None

    def there(self) -> bool:
        """Whether anything is left of a server, which may hold its ports."""
        return any(map(_is_ours, psutil.process_iter()))

    def stop(self) -> bool:
        """Ends the server and removes everything that it left; False if there was nothing."""
        server = _server()
        if server:
            server.terminate()
            try:
                server.wait(STOP_S)
            except psutil.TimeoutExpired:
                server.kill()
        left = [process for process in psutil.process_iter() if _is_ours(process)]
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=5)
        leftovers.remove(SHM_PREFIX)
        sockets.forget(RUN)
        state.forget()
        return bool(server or left)

    def log(self) -> str:
        try:
            return LOG.read_text(errors="replace")
        except OSError:
            return ""

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Writes the whole log, with what was set aside of it, and goes on where it is followed."""
        if not LOG.exists():
            raise UserError("there is no log of a local server yet", "start one: make up")
        on = "-F" if follow else ""
        script = f'cat "$1"; exec tail -n +1 {on} "$2"'
        return subprocess.Popen(
            ["sh", "-c", script, "logs", LOG.with_suffix(".log.1"), LOG],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )


def _require_files() -> None:
    """The server raises its limit of open files as far as this machine lets it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < FILES:
        raise UserError(
            f"no more than {most} files may be open here, and the server needs {FILES}",
            "raise the limit (ulimit -Hn, LimitNOFILE= of systemd), then run it again",
        )


def run_here(step: str, *arguments: str | Path) -> None:
    """Runs a step in the project's environment."""
    command = [*interrupts.HELD_BACK, PYTHON, "-m", f"scripts.steps.{step}", *arguments]
    environment = os.environ | {"TORCH_HOME": str(ROOT / "build" / "cache")}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as running:
        try:
            code = running.wait()
        except KeyboardInterrupt:
            _end(running)
            code = interrupts.INTERRUPTED
    if code < 0:  # it had no time to say why
        raise UserError(
            f"the step {step} crashed (signal {-code})",
            "if memory was short, free some; or else a library failed on this network",
        )
    if code:
        raise AlreadyReported(code)


def _end(step: subprocess.Popen[bytes]) -> None:
    """With what it has started itself. After Ctrl-C it knows already; after a SIGTERM to us not."""
    step.terminate()
    try:
        step.wait(STOP_S)
    except subprocess.TimeoutExpired:
        step.kill()


def _server() -> psutil.Process | None:
    known = state.load()
    if not known or not known.pid:
        return None
    try:
        process = psutil.Process(known.pid)
        earlier = isinstance(known.started, float) and _is_ours(process)
        same = earlier or processes.began(known.pid) == known.started
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        return None


def _is_ours(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = process.cmdline()
        ran = f"--run-dir={RUN}" in words or str(RUN / "envoy.yaml") in words
        return ran or any(SHM_PREFIX in word for word in words)
    except psutil.Error:
        return False


def _tree_hash(folder: Path) -> str:
    hasher = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in PROGRAMS):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()
