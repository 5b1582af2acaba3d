"""What an upgrade has to do here, and why, before any of it is done."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from scripts.artefacts.manifest import lines_of, why_export
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import DOTENV, ROOT
from scripts.recipes import folders, pipelines
from scripts.recipes.configs import LABELS
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU, GPU
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, evaluations, history, layout_number, model_folders
from scripts.repository.archive import Version
from scripts.server import layouts, served
from scripts.server.wanted_settings import settings_of
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, state
from scripts.stacks.stack import Stack
from scripts.steps import plan
from scripts.steps.engine import Check

if TYPE_CHECKING:
    from scripts.stacks.gpu import GpuStack

EARLIER_KEY = ROOT / "build" / "run" / "admin.key"


def require_plain() -> None:
    """Files and folders, where versions and what is the user's own lie: for a pipe all would wait,
    and a device has no end."""
    for file in (DOTENV, DOTENV.with_name(".env.before")):
        if file.is_dir():
            raise UserError(f"{file} is a folder", "remove it")
    for top in (archive.HERE, folders.own().folder, EARLIER_KEY):
        for path in (top, *top.rglob("*")):
            with suppress(OSError):  # a link that leads nowhere is named where it is read
                mode = path.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise UserError(f"{path} is neither a file nor a folder", "remove it")


def rewrite_files() -> Iterator[str]:
    """What this bundle writes differently."""
    for before, now in dotenv_file.list_renamed().items():
        yield f".env: {before} is called {now} now"
    if (number := layout_number.here()) < layout_number.NUMBER:
        yield f"build/versions: layout {number} becomes {layout_number.NUMBER}"
    if _key_is_elsewhere():
        yield f"the admin key moves to {admin_key.SHOWN}"
    for name, _, labels, _ in _find_labels_in_build():
        yield f"{name}: its labels, which checks write over, move from {labels} to own/"


def write() -> None:
    if dotenv_file.list_renamed():
        dotenv_file.rename()
    layout_number.write()
    if _key_is_elsewhere():
        files.write(admin_key.PATH, EARLIER_KEY.read_text(), 0o600)
        EARLIER_KEY.unlink()
    for name, recipe, labels, found in _find_labels_in_build():
        # By its name, too, a version knows the file that it was made with.
        _move_labels(recipe, found, folders.own().networks / name / "labels" / labels.name)


def _move_labels(recipe: Path, found: Path, kept: Path) -> None:
    files.write_bytes(kept, found.read_bytes())
    named = json.dumps(os.path.relpath(kept, recipe.parent), ensure_ascii=False)
    before = recipe.read_text()
    lines = (
        f"labels: {named}" if line.startswith("labels:") else line for line in before.splitlines()
    )
    files.write(recipe.resolve(), "".join(f"{line}\n" for line in lines), lasting=True)
    now = Pipeline(recipe.stem, recipe).recipe
    taken = now.labels_file if isinstance(now, Image) else None
    if not (taken and taken.is_file() and taken.samefile(kept)):
        files.write(recipe.resolve(), before)
        raise UserError(f"{recipe} names labels that checks write over", f"labels: {named}")


def _key_is_elsewhere() -> bool:
    return EARLIER_KEY.exists() and not admin_key.PATH.exists()


def _find_labels_in_build() -> Iterator[tuple[str, Path, Path, Path]]:
    """Of the user's pipelines, with the recipe's file, and that which has them as they are served:
    1.5.0 took what a check had written as it lay, which the next one writes over."""
    for name, file in pipelines.of_the_user().items():
        pipeline = Pipeline(name, file)
        labels = pipeline.recipe.labels_file if isinstance(pipeline.recipe, Image) else None
        if labels and labels.is_relative_to(evaluations.ORDERED):
            version = served.serving(pipeline)
            made = version.workspace.onnx / LABELS if version else labels
            found = made if made.is_file() and _is_other(labels, made) else labels
            if found.is_file():
                yield name, file, labels, found


def _is_other(labels: Path, made: Path) -> bool:
    return not labels.is_file() or lines_of(labels) != lines_of(made)


def explain_rebuild(stack: Stack, pipeline: Pipeline) -> str:
    """Why the live version has to be built anew; empty if it fits."""
    version = served.serving(pipeline)
    if version is None:
        return ""
    # Who went back from one that fits is not brought there again.
    left = (
        each
        for each in history.find_gone_back_from(history.read(pipeline))
        if each in archive.numbers(pipeline)
    )
    others = (_explain_rebuild(stack, archive.load(pipeline, number)) for number in left)
    why = _explain_rebuild(stack, version)
    return "" if why and "" in others else why


def _explain_rebuild(stack: Stack, version: Version) -> str:
    pipeline, known = version.pipeline, state.load()
    settings = settings_of(pipeline, known.settings if known else {}, version)
    export, made = pipeline.recipe.export(settings, stack.engine), version.workspace
    if export and (why := why_export(made.onnx, export.spec, export.as_before)):
        return f"export: {why}"
    if export and version.engine is CPU:
        check = Check(made.cpu_network, pipeline.recipe.computes_in(settings))
        if not check.fits(made.engine):
            return "the engine is checked again: OpenVINO, the processor or the check has changed"
    # Before it starts, the server's image may not be here.
    on_gpu = version.engine is stack.engine is GPU
    if export and on_gpu and not made.forest and stack.alive():
        gpu, shapes = cast("GpuStack", stack), pipeline.recipe.shapes(made, settings)
        wanted = plan.identity(made.onnx, gpu.gpu, gpu.tensorrt, shapes)
        if why := plan.why_build(made.plan, wanted):
            return f"plan: {why}"
    if changed := ", ".join(_list_changed_programs(stack, settings, version)):
        return f"programs that changed: {changed}"
    return ""


def _list_changed_programs(stack: Stack, settings: Settings, version: Version) -> Iterator[str]:
    layout = layouts.layout(settings, stack.engine)
    for model in version.pipeline.recipe.programs(layout):
        for name, text in model_folders.programs(model):
            digest = hashlib.sha256(text.encode()).hexdigest()
            if version.hashes.get(model, {}).get(name) != digest:
                yield model
                break


def restart_if_needed(stack: Stack, settings: Settings) -> bool:
    """Whether the running server has to be started again."""
    known, version = state.load(), served.serving(pipelines.main())
    if known is None or version is None or not stack.alive():
        return False
    settings = settings.fill_from(version.own_settings)
    fits = known.fingerprint == layouts.fingerprint(stack, settings, known.pipelines)
    return not fits or served.unhealthy_reason(stack, known, pipelines.main().ensemble) is not None
