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
from string import Template

import psutil

from bundle_serving.address import Address
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import processes, sockets
from bundle_serving.process.server_log import explain_end, first_error
from bundle_serving.process.start_server import STOP_S
from extensions.similar.export import ARCH
from extensions.similar.settings import embeddings, embeddings_port
from scripts import bootstrap
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import Manifest, Torchvision, why_export
from scripts.artefacts.step import Step
from scripts.base import console, files, interrupts, ports
from scripts.base.errors import UserError
from scripts.base.paths import MARK, PYTHON, ROOT
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, exposure, flavour, state
from scripts.stacks.containers import DockerStack
from scripts.stacks.docker_engine import require_done
from scripts.stacks.local import LocalStack, list_words, run_here
from scripts.stacks.state import State

MODEL = "embedding"
KEEPER = "bundle_keeper.afresh"
MADE = ROOT / "build" / "embeddings"
CONFIG = Path(__file__).with_name("config.pbtxt")
PROGRAM = "from bundle_serving.embedding_model import TritonPythonModel as TritonPythonModel\n"
INSTANCES = 2
# What is served: the network as the only model of a repository.
REPOSITORY = ROOT / "build" / "embeddings-live"
STATE = ROOT / "build" / "run" / "embeddings.json"
LOG = ROOT / "build" / "run" / "embeddings.log"
# Its name marks the processes, also those of earlier releases, whose folder lay elsewhere.
RUN = ROOT / "build" / "run" / f"embeddings_{MARK}"
EARLIER = Path(tempfile.gettempdir()) / RUN.name
SHM_PREFIX = f"{RUN.name}_"

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
    program = LocalStack(settings).version(), CONFIG.read_text()
    started_from = json.dumps([name, values, made, exposure.mark(settings), program])
    return State(name, hashlib.sha256(started_from.encode()).hexdigest(), settings.values)


def _start(wanted: State) -> None:
    settings = wanted.settings_at_start
    exposure.require_keys(settings)
    lay_out(MADE, settings, REPOSITORY)
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


def lay_out(made: Path, settings: Settings, repository: Path) -> None:
    from bundle_serving.pictures import Transform  # large

    manifest = Manifest.of_export(made)
    how = Transform(
        **manifest.transform, decode=settings.decode, max_megapixels=settings.max_megapixels
    )
    config = Template(CONFIG.read_text()).substitute(
        dimensions=manifest.onnx["dimensions"],
        instances=INSTANCES,
        threads=max(1, settings.cores // INSTANCES),
    )
    with files.whole_folder(repository) as draft:
        version = draft / MODEL / "1"
        for name in ("model.onnx", "network.txt"):
            files.link(made / name, version / name)
        files.write(version / "model.py", PROGRAM)
        files.write(version / "transform.json", how.dump())
        files.write(draft / MODEL / "config.pbtxt", config)
        files.let_all_read(draft)


def _start_process(wanted: State) -> None:
    settings = wanted.settings_at_start
    command: list[str | Path] = [PYTHON, "-m", KEEPER, "--go-on"]
    command += [PYTHON, "-m", "bundle_keeper", "--run-dir", RUN, "--repository", REPOSITORY]
    command += ["--load-model", MODEL, "--shm-prefix", SHM_PREFIX]
    command += ["--admin-key-file", admin_key.PATH, "--address", settings.bind]
    command += ["--http-port", str(embeddings_port.value_in(settings))]
    command += ["--grpc-port", "0", "--metrics-port", "0"]
    environment = exposure.environment(settings)
    environment |= {name: settings[name] for name in ("CORES", "START_TIMEOUT")}
    # Nothing is kept here, whatever the server keeps: no command would find it.
    environment["KEEP"] = ""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.unlink(missing_ok=True)
    with LOG.open("a") as log:  # which the door keeps short
        keeper = interrupts.start_apart(command, log, environment)
    replace(wanted, pid=keeper.pid).save(STATE)


def _wait(wanted: State, limit: float) -> None:
    with console.waiting("starting the embeddings service") as waiting:
        while reason := why_not(wanted):
            waiting.show(reason)
            failed, log, hint = _inspect(wanted)
            if failed or waiting.seconds > limit:
                cause = explain_end(log) if failed else first_error(log) or reason
                raise UserError(f"the embeddings service does not start: {cause}", hint)
            time.sleep(0.2)


def _inspect(wanted: State) -> tuple[bool, str, str]:
    """Whether it has ended, its log, and where to find that."""
    if wanted.flavour != "local":
        stack = DockerStack(wanted.settings_at_start)
        log = stack.log("embeddings")
        return not stack.alive("embeddings"), log, "see the whole log: docker compose up embeddings"
    log = LOG.read_text(errors="replace")
    return not _list_processes(), log, f"the whole log is in {LOG.relative_to(ROOT)}"


def _list_processes() -> dict[psutil.Process, list[str]]:
    """With the words of their commands."""
    commands = {process: list_words(process) for process in psutil.process_iter()}
    return {
        process: words
        for process, words in commands.items()
        if any(RUN.name in word for word in words)
    }


def _stop_processes() -> bool:
    """Ends the keeper first, which ends its program; then what a killed keeper left behind."""
    found = _list_processes()
    keepers = [process for process, words in found.items() if KEEPER in words]
    for process in keepers:
        with suppress(psutil.NoSuchProcess):  # it has ended, or another command ends it
            process.terminate()
    psutil.wait_procs(keepers, timeout=STOP_S)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(list(found), timeout=5)
    sockets.forget(RUN)
    for folder in (RUN, EARLIER):
        shutil.rmtree(folder, ignore_errors=True)
    processes.remove_leftovers(SHM_PREFIX)
    return bool(found)
