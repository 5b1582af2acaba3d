"""Brings the server up: exports, proves and lays out what does not fit yet, then serves it.

What is up and fits already is left alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from bundle_serving.pictures import Transform
from bundle_serving.server_log import first_error
from bundle_serving.start_server import PIPELINE
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.pipelines import CPU, Engine, Pipeline
from scripts.repository import archive, history, live, model_folders
from scripts.repository.archive import Version
from scripts.repository.model_folders import Decoding, Layout, Share
from scripts.server import engines, extra
from scripts.server.healthy import unhealthy_reason
from scripts.server.recover import restore
from scripts.settings import settings
from scripts.settings.settings import PORTS, Settings
from scripts.stacks import admin_key, flavour, gpu, state
from scripts.stacks.flavour import Stack
from scripts.stacks.state import State
from scripts.storage import on_demand
from scripts.storage.shared import Shared

# What is no file, and decides how a server runs.
PLACE = ("BIND", "MEMORY", "GPUS", "REPOSITORY", "S3_SERVER_CREDENTIALS")

# What is said of a network, and not of the machine or the server.
OF_A_NETWORK = {*archive.DECIDING, "CALIBRATION", "SAMPLES"}

# That a server which does not answer is left to its keeper.
KEEPERS_S = 15

# A network's hash stands in the manifest beside it.
NOT_HASHED = (".onnx", ".plan", ".pyc")


def bring_up(wished: Settings) -> State:
    """What is not said stays as it is in the version that serves."""
    first = pipelines.first()
    with lock.one_at_a_time():
        on_demand.require_reachable(wished)
        shared = Shared(wished, first)
        shared.pull()
        seed = serving(first)
        if seed:
            wished = wished.over(seed.settings)
            known = state.load()
            if not restore(known, seed, shared) and known:
                _stop(known)
                restore(None, seed, shared)
        name, why = flavour.choose(wished)
        console.note(f"flavour {name}: {why}")
        if wished["PREPROCESS"] == "dali" and name != "gpu":
            raise UserError(
                f"PREPROCESS=dali needs a GPU, and flavour {name} has none",
                "say PREPROCESS=python",
            )
        stack = flavour.stack(name, wished)
        stack.prepare()
        version = made_live(stack, wished, first, seed, shared)
        shared.push_live()
        server = _serve(stack, wished, version)
        if version != seed:
            shared.record(history.SERVES, version.number, "up", version.what)
        shared.push_history()
        extra.load_again(server)
        return server


def wished_of(pipeline: Pipeline, server: State, seed: Version | None) -> Settings:
    """What is said now, and for the rest what was said of what serves. A pipeline that was added
    has a recipe, and what .env says of a network is of the first one's."""
    before = seed.settings if seed else {}
    if pipeline.first:
        return settings.load().over(server.settings | before)
    others = {name: said for name, said in server.settings.items() if name not in OF_A_NETWORK}
    now = settings.load(not_in_dotenv=OF_A_NETWORK)
    return now.over(others | pipeline.said | before)


def serving(pipeline: Pipeline) -> Version | None:
    number = history.serving(history.read(pipeline))
    return archive.load(pipeline, number) if number else None


def served_version(pipeline: Pipeline | None = None) -> Version:
    """Of the server that is up; without a name, the first pipeline's."""
    pipeline = pipeline or pipelines.first()
    version = serving(pipeline)
    if version is None:
        raise UserError("nothing is served here", brings_up(pipeline))
    return version


def brings_up(pipeline: Pipeline) -> str:
    """The command that does."""
    return "make up" if pipeline.first else f"make up MODEL={pipeline.name}"


def served_transform(pipeline: Pipeline | None = None) -> Transform:
    """What is done to pictures before the network that serves."""
    version = served_version(pipeline)
    (record,) = version.folder.glob("models/*/transform.json")
    return Transform.load(record)


def made(stack: Stack, wished: Settings, pipeline: Pipeline, seed: Version | None) -> Version:
    """The version that is wished for: the seed, where all of it fits, or a new one."""
    how = layout(wished, engines.of(stack), pipeline)
    with archive.draft(pipeline, seed) as draft:
        engines.make(stack, wished, how, draft)
        contents = model_folders.contents(draft, how)
        return archive.keep(draft, contents, wished.values, pipeline, seed)


def made_live(
    stack: Stack, wished: Settings, pipeline: Pipeline, seed: Version | None, shared: Shared
) -> Version:
    """The version that is wished for, in the repository that the server reads, alone."""
    version = made(stack, wished, pipeline, seed)
    shared.push_version(version)
    lay_out(version, layout(wished, engines.of(stack), pipeline), live.REPOSITORY)
    live.leave_only(version)
    return version


def lay_out(version: Version, how: Layout, target: Path) -> None:
    """As a version of its pipeline in a repository, and as this machine runs it."""
    model_folders.furnish(target)
    live.place(version, target)
    model_folders.configure(version.workspace, how, target)


def layout(wished: Settings, engine: Engine, pipeline: Pipeline) -> Layout:
    def share(model: str) -> Share:
        return Share.of(
            wished.cores, wished.number(f"{model}_INSTANCES"), wished.number(f"{model}_THREADS")
        )

    decoding = Decoding(wished["PREPROCESS"], wished["DECODE"], float(wished["MAX_MEGAPIXELS"]))
    if engine is CPU:
        return Layout(pipeline, engine, decoding, share("PREPROCESS"), share("NETWORK"))
    of_each_gpu = wished.number("NETWORK_INSTANCES") or pipeline.recipe.instances.network_on_gpu
    network = Share(of_each_gpu, threads=1)
    return Layout(pipeline, engine, decoding, share("PREPROCESS"), network, gpu.scores_stay(wished))


def _serve(stack: Stack, wished: Settings, version: Version) -> State:
    wanted = State(stack.flavour, fingerprint(stack, wished), wished.values)
    known = state.load()
    if known and known.fingerprint == wanted.fingerprint and stack.alive():
        if unhealthy_reason(stack, known, PIPELINE) is None or _restored(stack, known):
            console.note(f"up already: {described(known, version)}")
            return known
        console.note("the server is there but does not answer: it is started afresh")
    if known:
        _stop(known)
    try:
        stack.start(wanted)
        _wait(stack, wanted, float(wished["START_TIMEOUT"]), version)
    except BaseException:  # Ctrl-C too: no server is left that nobody knows to work
        stack.stop()
        raise
    console.note(f"up: {described(wanted, version)}")
    return wanted


def _restored(stack: Stack, known: State) -> bool:
    """Whether its keeper gets it to answer."""
    if known.flavour == "gpu":  # which has none
        return False
    with console.waiting("the server does not answer: waiting for its keeper") as waiting:
        while reason := unhealthy_reason(stack, known, PIPELINE):
            waiting.show(reason)
            if waiting.seconds > KEEPERS_S:
                return False
            time.sleep(0.2)
    return True


def _stop(known: State) -> None:
    flavour.stack(known.flavour, known.started_with).stop()


def _wait(stack: Stack, wanted: State, limit: float, version: Version) -> None:
    """Until a picture is answered; readiness alone is green over a pipeline that is not."""
    with console.waiting("starting the server, until it answers a picture") as waiting:
        while reason := reason_not_to_trust(f"http://{wanted.http}", PIPELINE):
            waiting.show(reason)
            if not stack.alive():
                said = first_error(stack.log()) or reason
                raise UserError(f"the server stopped while it started: {said}", stack.log_hint)
            if waiting.seconds > limit:
                raise UserError(
                    f"{version.serving}, did not answer within {limit:.0f} s ({reason})",
                    "see make logs; on a slow machine raise START_TIMEOUT",
                )
            time.sleep(0.2)


def described(server: State, version: Version) -> str:
    asked = f"http://{server.http}/v2/models/{version.pipeline.ensemble}, gRPC {server.grpc}"
    what = f"{version.pipeline.ensemble}, serving {version.what} ({version.named})"
    return f"{what}, flavour {server.flavour}, {asked}"


def fingerprint(stack: Stack, wished: Settings) -> str:
    """One hash over all that a running server was started from. Other pipelines are loaded while
    it runs."""
    started_with = [stack.version(), *(wished[name] for name in (*PLACE, *PORTS))]
    started_with += [str(admin_key.mark()), laid_out(pipelines.first())]
    return hashlib.sha256(json.dumps(started_with).encode()).hexdigest()


def laid_out(pipeline: Pipeline) -> str:
    """One hash over what the server reads of a pipeline."""
    hasher = hashlib.sha256()
    models = (live.REPOSITORY / model for model in (*pipeline.members, pipeline.ensemble))
    for path in sorted(path for model in models for path in model.rglob("*")):
        if path.is_file() and path.suffix not in NOT_HASHED:
            name = path.relative_to(live.REPOSITORY)
            hasher.update(f"{name}\0".encode() + path.read_bytes())
    return hasher.hexdigest()
