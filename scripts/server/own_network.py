"""Takes in a network of the user's own: its recipe, its export, its check."""

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bundle_serving import own_steps
from scripts import bootstrap
from scripts.artefacts import packages
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import of_samples
from scripts.artefacts.shapes import sides
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base import console, files, lock, parts
from scripts.base.errors import UserError
from scripts.base.paths import expand, locate
from scripts.recipes import folders
from scripts.recipes.image import WHOLE, Image
from scripts.recipes.layout import CPU
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.recipe import Recipe
from scripts.repository import archive, custom, sources
from scripts.repository.own_pipelines import MADE_OF
from scripts.server import engines, labelled_photos
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks.local import run_here
from scripts.stacks.stack import Stack

# Of a recipe, and the files that say it.
STEPS = {"pre": own_steps.BEFORE, "post": own_steps.AFTER}
TENSORFLOW = "310 MB to load, 1.3 GB of disk"


def recipe_of(name: str, words: Mapping[str, str]) -> Recipe:
    """Of FROM, ONNX, ARCH, WEIGHTS, LABELS, …"""
    recipe = _find_recipe(name, words)
    return _with_steps(name, recipe, words) if isinstance(recipe, Image) else recipe


def _find_recipe(name: str, words: Mapping[str, str]) -> Recipe:
    given = dict(words)
    if not (wanted := given.pop("FROM", "").strip()):
        return custom.recipe(name, given)
    if given.get("ONNX") or given.get("ARCH"):
        raise UserError("FROM= already names a network", "omit ONNX and ARCH, or omit FROM")
    source = sources.find_source(wanted)
    if source.kind:
        with parts.name_faults(source.kind.__file__):
            made: Recipe = source.kind.make_recipe(name, source.path, given)
        return made
    folder = folders.own().networks / name
    if source.other and folder.exists():
        raise UserError(
            f"{folder} is there already, and what is made of {source.other} goes there",
            "move it elsewhere, or choose another NAME",
        )
    weights = given.get("WEIGHTS", "")
    is_filled = bool(weights) and expand(weights).is_file()
    made_of = _import_source(folder / _name_onnx(wanted), source, given)
    if source.other and (path := expand(weights if is_filled else source.other)).exists():
        content = {"source": str(path), "digest": _digest(path)}
        if is_filled:
            content["network"] = source.other
        files.write(folder / MADE_OF, json.dumps(content, indent=1) + "\n")
    return custom.recipe(name, made_of)


def _digest(path: Path) -> str:
    return files.sha256(path) if path.is_file() else of_samples(path)["samples"]


def tell_changed(pipeline: Pipeline) -> None:
    """Of what its network was converted from: it may have been trained again since."""
    folder = folders.own().networks / pipeline.name
    noted = files.read_json(folder / MADE_OF)
    path, digest = Path(noted.get("source", "")), noted.get("digest", "")
    with suppress(OSError):  # it may be another user's, who alone may read it
        digest = _digest(path) if noted and path.exists() else digest
    if digest != noted.get("digest", "") and not _of_version(folder, digest).exists():
        call = describe_publish(pipeline, str(path))
        console.note(f"{path} has changed since; for a new version of it: {call}")


def _of_version(folder: Path, digest: str) -> Path:
    return folder / digest[:12]


def _with_steps(name: str, recipe: Image, words: Mapping[str, str]) -> Image:
    """With the programs that lie beside what it was made of: copies, if that is elsewhere than the
    user's own folder, which is what backups have."""
    named = [words[word] for word in ("FROM", "ONNX", "WEIGHTS") if words.get(word)]
    path = locate(expand(named[0] if named else ""))
    folder = path if path.is_dir() else path.parent
    found = {key: folder / file for key, file in STEPS.items() if (folder / file).is_file()}
    if not (named and path.exists() and found):
        return recipe
    in_own = folder.is_relative_to(folders.own().folder)
    if not (in_own or arguments.load().trust):
        raise UserError(
            f"{' and '.join(each.name for each in found.values())} beside {path.name} would run in "
            "the server",
            f"if you trust its author: TRUST=1; otherwise take {path.name} elsewhere",
        )
    for each in found.values():
        console.note(f"with {each}, in the place of the usual step")
    if needed := packages.find_beside(path if path.is_file() else path / "network"):
        found["requirements"] = needed
    if not in_own:
        for key, each in found.items():
            found[key] = folders.own().networks / name / each.name
            if each == needed:
                packages.copy(each, found[key])
            else:
                files.write_bytes(found[key], each.read_bytes())
    return recipe.model_copy(
        update={key: custom.beside_recipes(each) for key, each in found.items()}
    )


def _name_onnx(source: str) -> str:
    """The file that is made of it: as people know that."""
    path = locate(expand(source))
    return f"{path.stem if path.is_file() else path.name}.onnx"


def _import_source(out: Path, source: sources.Source, given: dict[str, str]) -> dict[str, str]:
    """The user's words; what FROM= names is a file with a network by then: this one, alone in its
    folder, if it has to be made."""
    if source.network:
        return given | {"ONNX": str(source.network)}
    trusted = arguments.load().trust
    sources.require_trusted(source, trusted)
    size = custom.size(given.get("SIZE", ""))
    asked = {"source": source.other, "out": out, "size": size}
    if source.by_hand:
        _ensure_tensorflow(source)
        run_here(Step("scripts.steps.from_tensorflow"), *as_words(asked))
        return given | {"ONNX": str(out)}
    # They are in that file then, and no setting of the pipeline.
    os.environ.pop("WEIGHTS", "")
    asked |= {"weights": given.pop("WEIGHTS", "") or "default", "trusted": trusted}
    asked["pictures_given"] = bool(given.get("PICTURES"))
    bootstrap.ensure("hub")
    run_here(Step("scripts.steps.intake"), *as_words(asked))
    return given | {"ONNX": str(out)}


def import_version(pipeline: Pipeline, weights: str) -> str:
    """What a new version is made of: what WEIGHTS= names, or the ONNX file that it becomes. In a
    folder of its own, as the live version's is still asked for."""
    recipe, path = pipeline.recipe, expand(weights)
    home = folders.own().networks / pipeline.name
    noted = files.read_json(home / MADE_OF)
    known = (*sources.TORCH, *sources.KERAS)
    # As the first one's, into the same network.
    is_filling = "network" in noted and path.suffix == Path(noted["source"]).suffix
    is_known = path.is_dir() or (path.is_file() and (is_filling or path.suffix in known))
    if not (isinstance(recipe, Image) and recipe.source.endswith(WHOLE) and is_known):
        return weights
    source = sources.find_source(noted["network"] if is_filling else weights)
    if not source.other:
        return str(source.network or path)
    folder = _of_version(home, _digest(path))
    # The same file may have come by another name.
    made = next(folder.glob("*.onnx"), folder / _name_onnx(weights))
    if not made.is_file():
        size = "x".join(map(str, sides(recipe.pictures.crop)))
        given = {"SIZE": size, "PICTURES": "as in the recipe"}
        _import_source(made, source, given | ({"WEIGHTS": str(path)} if is_filling else {}))
    return str(made)


def require_as_said(pipeline: Pipeline, settings: Settings, live: Workspace) -> None:
    """Of a whole network, if it is another than the live one."""
    recipe, network = pipeline.recipe, Path(settings.weights)
    if not (isinstance(recipe, Image) and network.suffix in WHOLE and network.is_file()):
        return
    with suppress(UserError):  # what is lost of the live one is made again
        if files.sha256(network) == live.manifest.identity.get("sha256"):
            return
    custom.require_as_said(pipeline.name, recipe, network)


def describe_publish(pipeline: Pipeline, source: str) -> str:
    """The call that makes a version of what FROM= names."""
    call, own = f"make publish{pipeline.option}", pipeline.recipe.settings
    word = Settings.weights.name if Settings.weights.name in own else next(iter(own), "")
    return f"{call} {word}={shlex.quote(source)}" if word else f"change its files, then {call}"


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


def export_and_check(pipeline: Pipeline, settings: Settings, stack: Stack) -> Pipeline:
    """Exports and checks it, which later steps find done. Returns the pipeline with what the export
    found out."""
    with lock.one_at_a_time():
        stack.prepare()
        pipeline = labelled_photos.find_pictures(pipeline, stack)
        recipe = pipeline.recipe
        try:
            with archive.draft(pipeline, None) as draft:
                engines.export(stack, settings, pipeline, draft)
                if stack.engine is CPU:
                    engines.prove(stack, settings, pipeline, draft)
                found = Pipeline(pipeline.name, recipe.as_found(draft))
                found.recipe.require(draft, settings, archive.home(pipeline))
        finally:
            shutil.rmtree(archive.home(pipeline))
    # Of a file that does not say how it was trained.
    if isinstance(recipe, Image) and isinstance(found.recipe, Image) and not recipe.answers:
        console.note(f"pictures: {found.recipe.pictures}; otherwise: PICTURES=")
    return found
