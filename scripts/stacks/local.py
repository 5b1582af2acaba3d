"""Flavour local: the steps and the server as plain processes in the project's environment."""

import hashlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes, processes, sockets
from bundle_serving.process.start_server import STOP_S, StartError, libpython_folder
from bundle_serving.protocol.over_socket import AtSocket
from scripts import bootstrap
from scripts.artefacts.step import Place, Step
from scripts.base import interrupts, lock, ports
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.files import is_shared
from scripts.base.paths import MARK, PYTHON, ROOT, find_trusted
from scripts.recipes.layout import CPU
from scripts.repository import live, place
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, certificates, exposure, handover, state, temporary
from scripts.stacks.stack import Many, why_not_ready
from scripts.stacks.state import State

RUN = state.RUN
LOG = RUN / "server.log"
# Of a server beside another one, until it takes over.
LOG_BESIDE = RUN / "beside.log"

# Triton alone opens some hundreds of files, and each client one more.
FILES = 1024

# What starts the keeper, and starts it again.
GUARD = "bundle_keeper.afresh"

# The longest that a process has no command, while the machine is busy.
STARTING_S = 1

# Of two servers that take over from each other: each has a folder in RUN, the first one RUN itself.
SIDES = ("", "b")

# What a change of makes another server.
PROGRAMS = (".py", ".lua", ".html", ".css", ".js", ".svg", ".yaml")

LAYERS = {
    Place.EXPORT: ("export",),
    Place.SERVER: ("serve",),
    Place.ADOPT: ("serve", "adopt"),
}


class LocalStack:
    flavour = "local"
    engine = CPU
    many: Many | None = None
    run_dir = str(RUN)  # writable, and programs may run from it
    log_hint = f"the whole log is in {LOG.relative_to(ROOT)}"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def prepare(self) -> None:
        require_plain_path()
        if not bootstrap.can_serve():
            raise UserError(
                "without Docker, the server needs Python 3.11 or 3.12",
                "install one and select it: make clean && make up PYTHON=python3.12",
            )
        try:
            libpython_folder()
        except StartError as fault:
            raise UserError.from_fault(fault) from None
        require_files()
        bootstrap.ensure("serve")
        admin_key.ensure()
        certificates.place(self._settings)
        certificates.make(self._settings)

    def run_step(self, step: Step, *arguments: str | Path) -> None:
        for layer in LAYERS[step.place]:
            bootstrap.ensure(layer)
        run_here(step, *arguments)

    def version(self) -> str:
        hasher = hashlib.sha256()
        for folder in (ROOT / "serving", *sorted(ROOT.glob("*/*/serving"))):
            for path in sorted(folder.rglob("*")):
                if path.suffix in PROGRAMS:
                    hasher.update(path.read_bytes())
        return hasher.hexdigest()

    def start(self, wanted: State) -> None:
        ports.require_free(self._settings.bind, self._settings.ports)
        RUN.mkdir(parents=True, exist_ok=True)
        _set_aside()
        wanted.save()  # what is started is found, should this command be killed now
        self._start(wanted, LOG).save()

    def why_alone(self, known: State) -> str | None:
        server = _server(known)
        if known.flavour != self.flavour or server is None:
            return "it is of another flavour"
        return handover.obstacle(self._settings, known.settings_at_start, server.pid)

    def rehearse(self) -> None:
        """Where no other server can come up beside this one, there is nothing to try."""

    def start_beside(self, known: State, wanted: State, pipelines: Iterable[str]) -> State:
        """It opens its ports once it has loaded all of these."""
        (side,) = {*SIDES} - {known.side}
        _clear(side)
        for log in (LOG_BESIDE, state.REFUSED):
            log.unlink(missing_ok=True)
        last = [f"--door-last={os.getpid()}", "--extra-pipelines", " ".join(pipelines)]
        return self._start(replace(wanted, side=side), LOG_BESIDE, last)

    def take_over(self, known: State, new: State) -> None:
        new.save()
        _set_aside()
        LOG_BESIDE.replace(LOG)
        with lock.hands_off():  # its keeper would open its door again
            handover.drain_local(RUN / known.side, known.settings_at_start)
            _end_server(known)
        _clear(known.side)

    def withdraw(self, new: State) -> None:
        _end_server(new)
        _clear(new.side)
        LOG_BESIDE.replace(state.REFUSED)

    def end_strays(self, known: State) -> None:
        (side,) = {*SIDES} - {known.side}
        if guard := _guard_of(side):
            _end_process(guard)
        _clear(side)

    def _start(self, wanted: State, log: Path, more: Iterable[str] = ()) -> State:
        run = RUN / wanted.side
        run.mkdir(parents=True, exist_ok=True)
        keeper_notes.forget(run)
        command: list[str | Path] = [PYTHON, "-m", GUARD, "--go-on"]
        command += [PYTHON, "-m", "bundle_keeper", "--run-dir", run, *more]
        command += ["--load-model", wanted.main, "--hands-off", lock.hands_off_file()]
        command += ["--shm-prefix", _shm_prefix(wanted.side)]
        command += ["--admin-key-file", admin_key.PATH, "--address", self._settings.bind]
        for name, port in self._settings.ports.items():
            command += [f"--{name.replace('_', '-').lower()}", str(port)]
        elsewhere = place.find(self._settings)
        command += elsewhere.list_options() if elsewhere else ["--repository", live.REPOSITORY]
        environment = exposure.environment(self._settings)
        others = ("CACHE_MB", "CORES", "START_TIMEOUT")
        environment |= {name: self._settings[name] for name in others}
        environment["STATE_FOLDER"] = str(RUN)
        mode = 0o640 if is_shared() else 0o600
        opener = partial(os.open, mode=mode)  # for what clients send is in it
        with open(log, "a", opener=opener) as file:  # which the door keeps short
            server = interrupts.start_apart(command, file, environment)
        return replace(wanted, pid=server.pid)

    def temporary(
        self, repository: Path, log: Path, pipeline: str
    ) -> AbstractContextManager[tuple[str, str]]:
        return temporary.triton("the server", repository, log, pipeline)

    def room(self) -> int | None:
        return int(psutil.virtual_memory().available)

    def keeper_state(self, server: State | None = None) -> dict[str, Any]:
        known = server or state.load()
        if not known:
            return {}
        noted = RUN / known.side / keeper_notes.STATE
        _require_ours(noted)
        return keeper_notes.read(noted.parent)

    def alive(self, server: State | None = None) -> bool:
        return _server(server or state.load()) is not None

    def why_unready(self, new: State) -> str | None:
        """Of a server beside another one, which may get what is sent to the ports."""
        if not self.alive(new):
            raise handover.refuse_new(LOG_BESIDE.read_text())
        if reason := why_not_ready(self.keeper_state(new)):
            return reason
        if not (new.pid and handover.is_open(self._settings, new.pid)):
            return "its door is not open yet"
        folder = sockets.folder(RUN / new.side)
        own_id = exposure.address(self._settings, self._settings.http_port).own_id
        at = AtSocket(socket=folder / sockets.HTTP, own_id=own_id)
        return reason_not_to_trust(at, new.main)

    def there(self) -> bool:
        return any(_is_of(side, each) for each in psutil.process_iter() for side in SIDES)

    def find_held_ports(self) -> set[int]:
        return set()

    def stop(self) -> bool:
        stopped = _end_server(state.load())
        left = [_clear(side) for side in SIDES]
        state.forget()
        return stopped or any(left)

    def log(self) -> str:
        try:
            return LOG.read_text(errors="replace")
        except OSError:
            return ""

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Writes the whole log, with what was set aside of it, and goes on where it is followed."""
        if not LOG.exists():
            raise UserError("there is no log of a local server yet", "start one: make up")
        _require_ours(LOG)
        on = "-F" if follow else ""
        script = f'cat "$1"; exec tail -n +1 {on} "$2"'
        return subprocess.Popen(
            ["sh", "-c", script, "logs", LOG.with_suffix(".log.1"), LOG],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )


def _require_ours(file: Path) -> None:
    if file.exists() and not os.access(file, os.R_OK):
        raise UserError("the server belongs to another user", "run it as that user")


def require_plain_path() -> None:
    """Triton starts its models' processes by a shell, to which it gives their paths as they are;
    and their Python takes no letters beyond ASCII, whatever the locale."""
    if set(str(ROOT)) & set(" \t\n'\"\\$&();<>|`") or not str(ROOT).isascii():
        raise UserError(
            f"without Docker, Triton cannot run in a folder with such a name: {ROOT}",
            "move it to a path of plain letters, without spaces, quotes and the like",
        )


def require_files() -> None:
    """The server raises its limit of open files as far as this machine lets it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < FILES:
        raise UserError(
            f"no more than {most} files may be open here, and the server needs {FILES}",
            "raise the limit (ulimit -Hn, LimitNOFILE= of systemd), then run it again",
        )


def run_here(step: Step, *arguments: str | Path) -> None:
    """Runs a step in the project's environment."""
    ends = processes.end_with_parent(signal.SIGTERM)  # else it would write where the next one does
    command = [*ends, *interrupts.HELD_BACK, PYTHON, "-m", step.module, *arguments]
    trusted = find_trusted()
    of_libraries = (
        dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), trusted) if trusted else {}
    )
    environment = of_libraries | os.environ | {"TORCH_HOME": str(ROOT / "build" / "cache")}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as running:
        try:
            code = running.wait()
        except KeyboardInterrupt:
            _end_process(running)  # after Ctrl-C it knows already; after a SIGTERM to us not
            code = running.wait()
            if code != interrupts.INTERRUPTED:
                raise  # it ended without a word
    if code < 0:  # it had no time to say why
        raise UserError(
            f"the step {step.module} crashed (signal {-code})",
            "if memory was short, free some; or else a library failed on this network",
        )
    if code:
        raise AlreadyReported(code)


def _server(known: State | None) -> psutil.Process | None:
    if not known:
        return None
    if known.pid:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(known.pid)
            if _is_of(known.side, process):  # and no later one of the same number
                return process
    # The keeper takes its place where it was killed.
    return _guard_of(known.side)


def _guard_of(side: str) -> psutil.Process | None:
    for each in psutil.process_iter():
        if _is_of(side, each) and GUARD in list_words(each):
            return each
    return None


def _set_aside() -> None:
    if LOG.exists():
        LOG.replace(LOG.with_suffix(".log.1"))


def _end_server(known: State | None) -> bool:
    server = _server(known)
    if server:
        _end_process(server)
    return server is not None


def _end_process(process: psutil.Process | subprocess.Popen[bytes]) -> None:
    """With what it has started itself."""
    with suppress(psutil.NoSuchProcess):  # it ends by itself
        process.terminate()
        try:
            process.wait(STOP_S)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            process.kill()


def _clear(side: str) -> bool:
    """Ends and removes everything that a server left; False if there was nothing."""
    left = [process for process in psutil.process_iter() if _is_of(side, process)]
    for process in left:
        with suppress(psutil.NoSuchProcess):  # it ended with another one
            process.kill()
    psutil.wait_procs(left, timeout=5)
    processes.remove_leftovers(_shm_prefix(side))
    sockets.forget(RUN / side)
    return bool(left)


def _shm_prefix(side: str) -> str:
    """Identifies a server's processes and their shared memory."""
    return f"triton_bundle_{MARK}{side}_"


def _is_of(side: str, process: psutil.Process) -> bool:
    words, run = list_words(process), RUN / side
    ran = f"--run-dir={run}" in words or str(run / "envoy.yaml") in words
    return ran or any(_shm_prefix(side) in word for word in words)


def list_words(process: psutil.Process) -> list[str]:
    """Of its command; none of one that has ended. One that has just been started, or becomes
    another program, has none for a moment; the kernel's own, which are no program, never have."""
    until = time.monotonic() + STARTING_S
    try:
        while not (words := process.cmdline()) and process.exe() and time.monotonic() < until:
            time.sleep(0.001)
        return words
    except psutil.Error:
        return []
