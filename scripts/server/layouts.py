"""Versions in a repository, configured for this machine; and a mark of all that a server is started
with."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU, Decoding, Engine, Layout, Share, in_one_step
from scripts.recipes.pipelines import Pipeline
from scripts.repository import live, model_folders
from scripts.repository.archive import Version
from scripts.settings.settings import SERVER, Settings, names
from scripts.stacks import admin_key, exposure
from scripts.stacks.stack import Stack

# The network's hash is in the manifest beside it.
NOT_HASHED = (".onnx", ".plan", ".tl", ".pyc")


def lay_out(version: Version, how: Layout, target: Path) -> None:
    """Lays out a version in a repository, configured for this machine. Its steps are its own: those
    of another pipeline may be more or fewer, and decode otherwise."""
    model_folders.furnish(version.pipeline, target)
    live.place(version, target)
    step = version.settings.get(Settings.preprocess.name, how.decoding.step)
    decoding = replace(how.decoding, step=step)
    how = replace(how, one_step=version.one_step, decoding=decoding)
    model_folders.configure(version.pipeline, version.workspace, how, target)


def lay_out_alone(version: Version, settings: Settings, engine: Engine) -> None:
    """As the only one in the repository that the server reads."""
    lay_out(version, layout(settings, engine), live.REPOSITORY)
    live.leave_only(version)


def layout(settings: Settings, engine: Engine) -> Layout:
    preprocessing = Share.preprocessing(settings)
    decoding = Decoding(settings.preprocess, settings.decode, settings.max_megapixels)
    if engine is CPU:
        shares = preprocessing, Share.network(settings)
        return Layout(engine, decoding, *shares, one_step=in_one_step(settings.steps, engine))
    if settings.steps == "1":
        raise UserError(
            "STEPS=1 is for a CPU: on a GPU the network is a step of its own", "use STEPS=3"
        )
    # With what talks to Docker, which takes long to load.
    from scripts.stacks.gpu import scores_stay

    network = Share(settings.network_instances or 0, threads=1)
    return Layout(engine, decoding, preprocessing, network, scores_stay(settings))


def fingerprint(stack: Stack, settings: Settings, loads: Collection[str]) -> str:
    """A hash of everything that a running server was started from, with the pipelines that it loads
    by itself; others are loaded later."""
    others = pipelines.others() if loads else []
    started_with = [stack.version(), *(settings[name] for name in names(SERVER))]
    main = pipelines.main()
    started_with += [str(admin_key.mark()), exposure.mark(settings), main.name, hash_layout(main)]
    started_with += [hash_layout(each) for each in others if each.ensemble in loads]
    return hashlib.sha256(json.dumps(started_with).encode()).hexdigest()


def hash_layout(pipeline: Pipeline) -> str:
    """A hash of a pipeline's files in the server's repository."""
    hasher = hashlib.sha256()
    models = (live.REPOSITORY / model for model in (*pipeline.recipe.members, pipeline.ensemble))
    for path in sorted(path for model in models for path in model.rglob("*")):
        if path.is_file() and path.suffix not in NOT_HASHED:
            name = path.relative_to(live.REPOSITORY)
            hasher.update(f"{name}\0".encode() + path.read_bytes())
    return hasher.hexdigest()
