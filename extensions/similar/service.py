"""The embeddings service, beside the server or alone: starting, finding, stopping it.

It computes on the CPU, whatever the flavour.
"""

import hashlib
import json
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from bundle_serving.address import Address
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import processes
from bundle_serving.process.server_log import first_error
from extensions.similar.export import ARCH
from extensions.similar.settings import embeddings, embeddings_port
from scripts import bootstrap
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import Torchvision, why_export
from scripts.artefacts.step import Step
from scripts.base import console, files, interrupts, ports
from scripts.base.errors import UserError
from scripts.base.paths import MARK, PYTHON, ROOT
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, exposure, flavour, state
from scripts.stacks.containers import DockerStack
from scripts.stacks.engine import require_done
from scripts.stacks.local import LocalStack, list_words, run_here
from scripts.stacks.state import State

MODEL = "embedding"
KEEPER = "bundle_keeper.afresh"
MADE = ROOT / "build" / "embeddings"
STATE = ROOT / "build" / "run" / "embeddings.json"
LOG = ROOT / "build" / "run" / "embeddings.log"
# Short, because PyTriton's socket paths may have 107 characters. It also marks the processes.
RUN = Path(tempfile.gettempdir()) / f"embeddings_{MARK}"
SHM_PREFIX = f"{RUN.name}_"
# What its keeper says when it has ended; and how long that takes when it is told to.
RESTARTED, STOP_S = "restarting in", 25

# A change of one of these starts it anew.
STARTED_WITH = (
    *("DECODE", "MAX_MEGAPIXELS", "BIND", "EMBEDDINGS_PORT", "CORES", "TLS_CERT", "INSECURE"),
    "ALLOWED_HOSTS",
)

# The settings that the network was exported with, for commands that omit them.
MADE_WITH = MADE / "settings.json"


def ensure(settings: Settings) -> State:
    """Leaves a running service that fits alone. Omitted settings keep its values."""
    known = state.load(STATE)
    server = state.load()
    settings = settings.fill_from(known.settings if known else files.read_json(MADE_WITH))
    _export(settings)
    name = settings.flavour or (server.flavour if server else flavour.choose(settings)[0])
    wanted = _describe_wanted("local" if name == "local" else "cpu", settings)
    if known and known.fingerprint == wanted.fingerprint:
        if why_not(known) is None:
            return known
        console.note("the embeddings service does not answer; restarting it")
    stop()
    try:
        _start(wanted)
        _wait(wanted, settings.start_timeout)
    except BaseException:  # Ctrl-C too: leave no service behind that may not work
        stop()
        raise
    console.note(f"embeddings: {network()}, on {where(wanted).url}")
    return wanted


def where(known: State) -> Address:
    return known.where(embeddings_port.value_in(known.settings_at_start))


def why_not(known: State) -> str | None:
    return reason_not_to_trust(where(known), MODEL)


def network() -> str:
    return (MADE / "network.txt").read_text().strip()


def stop() -> bool:
    """Returns whether there was one."""
    known = state.load(STATE)
    found = _stop_processes()
    if known and known.flavour != "local":
        found = DockerStack(known.settings_at_start).compose.remove_service("embeddings") or found
    state.forget(STATE)
    return found


def _export(settings: Settings) -> None:
    weights = embeddings.value_in(settings)
    wanted = Torchvision(ARCH, weights)
    if reason := why_export(MADE, wanted, as_before=embeddings.name not in settings.given):
        console.note(f"embeddings: {reason}")
        bootstrap.ensure("export")
        run_here(Step("extensions.similar.export"), *as_words({"weights": weights, "out": MADE}))
    files.write(MADE_WITH, json.dumps({embeddings.name: weights}) + "\n")


def _describe_wanted(name: str, settings: Settings) -> State:
    values = {setting: settings[setting] for setting in STARTED_WITH}
    made = (MADE / "manifest.json").read_text()
    started_from = json.dumps(
        [name, values, made, exposure.mark(settings), LocalStack(settings).version()]
    )
    return State(name, hashlib.sha256(started_from.encode()).hexdigest(), settings.values)


def _start(wanted: State) -> None:
    settings = wanted.settings_at_start
    exposure.require_keys(settings)
    if wanted.flavour == "local":
        LocalStack(settings).prepare()
        _require_a_free_port(settings, by_engine=False)
        _start_process(wanted)
        return
    stack = DockerStack(settings)
    stack.prepare()
    _require_a_free_port(settings, by_engine=True)
    wanted.save(STATE)
    started = stack.compose.run(
        "up", "--detach", "--no-build", "embeddings", wanted=wanted, quiet=True
    )
    require_done(started, "Docker cannot start the embeddings service")


def _require_a_free_port(settings: Settings, by_engine: bool) -> None:
    wanted = {embeddings_port.name: embeddings_port.value_in(settings)}
    ports.require_free(settings.bind, wanted, "similar", by_engine)


def _start_process(wanted: State) -> None:
    settings = wanted.settings_at_start
    service: list[str | Path] = [PYTHON, "-m", "bundle_serving.embedding_service"]
    service += ["--made", MADE, "--run-dir", RUN, "--shm-prefix", SHM_PREFIX]
    service += ["--address", settings.bind, "--port", str(embeddings_port.value_in(settings))]
    service += ["--admin-key-file", admin_key.PATH]
    service += ["--cores", str(settings.cores), "--decode", settings.decode]
    service += ["--max-megapixels", f"{settings.max_megapixels:g}"]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.unlink(missing_ok=True)
    with LOG.open("a") as log:  # which the door keeps short
        command = [PYTHON, "-m", KEEPER, "--go-on", *service]
        keeper = interrupts.start_apart(command, log, exposure.environment(settings))
    replace(wanted, pid=keeper.pid).save(STATE)


def _wait(wanted: State, limit: float) -> None:
    with console.waiting("starting the embeddings service") as waiting:
        while reason := why_not(wanted):
            waiting.show(reason)
            failed, log, hint = _inspect(wanted)
            if failed or waiting.seconds > limit:
                raise UserError(
                    f"the embeddings service does not start: {first_error(log) or reason}", hint
                )
            time.sleep(0.2)


def _inspect(wanted: State) -> tuple[bool, str, str]:
    """Whether it has ended, its log, and where to find that."""
    if wanted.flavour != "local":
        stack = DockerStack(wanted.settings_at_start)
        log = stack.log("embeddings")
        return not stack.alive("embeddings"), log, "see the whole log: docker compose up embeddings"
    log = LOG.read_text(errors="replace")
    return RESTARTED in log, log, f"the whole log is in {LOG.relative_to(ROOT)}"


def _stop_processes() -> bool:
    """Ends the keeper first, which ends its program; then what a killed keeper left behind."""
    commands = {process: list_words(process) for process in psutil.process_iter()}
    found = [each for each, words in commands.items() if any(str(RUN) in word for word in words)]
    keepers = [process for process in found if KEEPER in commands[process]]
    for process in keepers:
        with suppress(psutil.NoSuchProcess):  # it has ended, or another command ends it
            process.terminate()
    psutil.wait_procs(keepers, timeout=STOP_S)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=5)
    shutil.rmtree(RUN, ignore_errors=True)
    processes.remove_leftovers(SHM_PREFIX)
    return bool(found)
