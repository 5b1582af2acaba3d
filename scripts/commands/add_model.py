"""Serves a network of your own as another pipeline: a recipe, its model folders, a server.

    make add-model NAME=birds ONNX=birds.onnx LABELS=birds.txt
    make add-model NAME=birds ARCH=resnet18 WEIGHTS=birds.pth LABELS=birds.txt
    make add-model NAME=birds FROM=birds.xml LABELS=birds.txt     OpenVINO's, birds.bin beside it
    make add-model NAME=light ARCH=mobilenet_v3_small          torchvision's own weights and labels
    make add-model NAME=birds FROM=birds.keras LABELS=birds.txt   Keras's
    make add-model NAME=birds FROM=birds TRUST=1                  TensorFlow's, a program
    make add-model NAME=vit FROM=google/vit-base-patch16-224   a hub's, or another file or folder

    make add-model NAME=street FROM=folder-of-detr             a detector of Hugging Face's
    make add-model NAME=flowers FROM=flowers.json              XGBoost's, or another of tables

What cannot be served is refused before anything is written. Then: make classify MODEL=birds IMG=…,
and up, publish, rollout, rollback, history and bench with MODEL=birds.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kinds.image.recipe import Image
from scripts import bootstrap
from scripts.artefacts import picture
from scripts.artefacts.step import Step
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders
from scripts.recipes.layout import CPU
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.recipe import Recipe
from scripts.repository import archive, custom, own_pipelines, sources
from scripts.server import agreeing, ask, engines, removal, up
from scripts.server.running import running_server
from scripts.settings import arguments
from scripts.stacks import flavour
from scripts.stacks.local import run_here
from scripts.stacks.state import State

PICTURE = ROOT / "build" / "mug.jpg"
TENSORFLOW = "310 MB to load, 1.3 GB of disk"


def main() -> int:
    name = arguments.load().name
    own_pipelines.require_a_name(name)
    own_pipelines.require_unused(name)
    samples = agreeing.samples(arguments.load().sample)
    try:
        pipeline, server = add_pipeline(name, samples)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(folders.own().networks / name, ignore_errors=True)
        raise
    shown = [str(path) for path, _ in samples]
    if pipeline.recipe.asked_about == "IMG" and not samples:
        picture.main(["--out", str(PICTURE)])
        shown = [str(PICTURE.relative_to(ROOT))]
    return pipeline.recipe.ask(ask.server_of(server), shown, os.environ)


def add_pipeline(name: str, samples: list[agreeing.Sample]) -> tuple[Pipeline, State]:
    wanted = Pipeline(name, recipe_of(name))
    own_pipelines.require_new(wanted)
    server = running_server(up.of_the_server(wanted))
    pipeline = export_and_check(wanted, server)
    with own_pipelines.write_pipeline(pipeline, pipeline.recipe.head.format(name=name)):
        up.bring_up_beside(pipeline, server)
        try:
            agreeing.require(pipeline, server)
            agreeing.require_shown(pipeline, server, samples)
        except BaseException:
            removal.unload(pipeline, server)
            raise
    return pipeline, server


def recipe_of(name: str) -> Recipe:
    given = dict(os.environ)
    if not (wanted := given.pop("FROM", "").strip()):
        return custom.recipe(name, given)
    if given.get("ONNX") or given.get("ARCH"):
        raise UserError("FROM= already names a network", "omit ONNX and ARCH, or omit FROM")
    source = sources.find_source(wanted)
    if source.kind:
        made: Recipe = source.kind.make_recipe(name, source.path, given)
        return made
    return custom.recipe(name, import_source(name, source, given))


def import_source(name: str, source: sources.Source, given: dict[str, str]) -> dict[str, str]:
    """The user's words; what FROM= names is a file with a network by then."""
    if source.network:
        return given | {"ONNX": str(source.network)}
    trusted = arguments.load().trust
    sources.require_trusted(source, trusted)
    folder = folders.own().networks / name
    words: list[str | Path] = ["--source", source.other, "--out", folder]
    if size := custom.size(given.get("SIZE", "")):
        words += ["--size", *map(str, size)]
    if source.by_hand:
        _ensure_tensorflow(source)
        run_here(Step("scripts.steps.from_tensorflow"), *words)
        return given | {"ONNX": str(folder / "model.onnx")}
    # They are in that file then, and no setting of the pipeline.
    os.environ.pop("WEIGHTS", "")
    words += ["--weights", given.pop("WEIGHTS", "") or "default"]
    if given.get("PICTURES"):
        words.append("--pictures-given")
    if trusted:
        words.append("--trusted")
    bootstrap.ensure("hub")
    run_here(Step("scripts.steps.intake"), *words)
    return given | {"ONNX": str(folder / "model.onnx")}


def _ensure_tensorflow(source: sources.Source) -> None:
    if not bootstrap.is_installed("tensorflow"):
        console.note(f"TensorFlow converts it, and is installed once: {TENSORFLOW}")
    try:
        bootstrap.ensure("tensorflow")
    except UserError as fault:
        raise UserError(
            f"{source.other} needs TensorFlow, which cannot be installed here ({fault.cause})",
            f"where it can, {source.by_hand}",
        ) from None


def export_and_check(pipeline: Pipeline, server: State) -> Pipeline:
    """Exports and checks it, which later steps find done. Returns the pipeline with what the export
    found out."""
    recipe = pipeline.recipe
    settings = up.settings_of(pipeline, server.settings, None)
    stack = flavour.stack(server.flavour, settings)
    with lock.one_at_a_time():
        stack.prepare()
        try:
            with archive.draft(pipeline, None) as draft:
                engines.export(stack, settings, pipeline, draft)
                if engines.engine_for(stack) is CPU:
                    engines.prove(stack, settings, pipeline, draft)
                found = Pipeline(pipeline.name, recipe.as_found(draft))
                found.recipe.require(draft, settings, archive.home(pipeline))
        finally:
            shutil.rmtree(archive.home(pipeline))
    # Of a file that does not say how it was trained.
    if isinstance(recipe, Image) and isinstance(found.recipe, Image) and not recipe.answers:
        console.note(f"pictures: {found.recipe.pictures}; otherwise: PICTURES=")
    return found
