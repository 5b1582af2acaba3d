"""Results of the steps + folders of model_repository -> what Triton serves on this machine.

Copies the models' configs and adds the rest: the members' version folders, the labels, and the
members' configs/ with this machine's instance counts. Nothing is served from model_repository
itself: an edit there takes effect with the next version.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bundle_serving.networks import files_of, network_in
from scripts.artefacts.workspace import FOREST, Workspace
from scripts.base import console, files, parts
from scripts.recipes import configs, folders, pipelines
from scripts.recipes.configs import LABELS
from scripts.recipes.layout import GPU, Engine, Layout
from scripts.recipes.pipelines import Pipeline

if TYPE_CHECKING:
    from bundle_serving.protocol.kserve import ModelConfig
    from scripts.recipes.recipe import Contents

NEWEST_VERSION = re.compile(rb"version_policy:?\s*\{\s*latest:?\s*\{\s*num_versions:\s*1\s*\}\s*\}")
EVERY_VERSION = b"version_policy { all { } }"
HEAD = "# config.pbtxt adapted to this machine. Written by the command that loads the model.\n"


def contents(pipeline: Pipeline, made: Workspace, layout: Layout) -> Contents:
    """The content of the members' version folders, for a pipeline with this network."""
    recipe = pipeline.recipe
    found: dict[str, dict[str, Path | str]] = {
        model: {**dict(programs(model))} for model in recipe.programs(layout)
    }
    if model := recipe.network_model(layout.engine):
        found[model] = found.get(model, {}) | _network(made, layout.engine)
    if layout.engine is GPU and (step := recipe.model_names.get("postprocessing")):
        # It reports what a plan answers, which itself reports nothing.
        found[step] |= {"manifest.json": made.onnx / "manifest.json"}
    for model, added in recipe.additions(made, layout).items():
        found[model] |= added
    return found


def programs(model: str) -> Iterator[tuple[str, str]]:
    """Copied as text: a hard link would follow edits of the original. With what they share, if
    they are of a kind of the user's own: no image has that."""
    folder = folders.model_folder(model)
    is_own = folder.parents[2] == folders.own().kinds
    homes = [folder.parents[1] / "serving"] if is_own else []
    for home in (*homes, folder / "1"):
        for path in sorted(home.rglob("*")):
            if path.is_file() and path.name != ".gitkeep" and "__pycache__" not in path.parts:
                with parts.name_faults(str(path)):
                    text = path.read_text()
                    if is_own and path.suffix == ".py":
                        compile(text, path, "exec")
                yield str(path.relative_to(home)), text


def _network(made: Workspace, engine: Engine) -> dict[str, Path | str]:
    if engine is GPU and made.forest:
        return {FOREST: made.forest, "manifest.json": made.onnx / "manifest.json"}
    if engine is GPU:
        return {
            engine.file: made.plan / engine.file,
            "manifest.json": made.onnx / "manifest.json",
            "plan.json": made.plan / "manifest.json",
        }
    network = made.cpu_network
    return {
        **{path.name: path for path in files_of(network_in(network))},
        "manifest.json": network / "manifest.json",
        "engine.json": made.engine / "engine.json",
    }


def furnish(pipeline: Pipeline, repository: Path) -> None:
    """Copies the models of this pipeline, of those that have versions there, and the user's of no
    pipeline, without versions. Triton's index names whatever lies there: nothing else may."""
    known = folders.model_folders()
    absent = _list_absent(pipeline, repository)
    furnish_with(known.keys() - absent, repository)
    sees_all = folders.own().folder.is_dir()  # a container may not see the user's
    for there in repository.glob("*/"):
        if there.name in absent or (sees_all and there.name not in known):
            shutil.rmtree(there)


def _list_absent(pipeline: Pipeline, repository: Path) -> set[str]:
    """Models of pipelines that were never brought up here."""
    wanted, absent = {pipeline.ensemble, *pipeline.recipe.members}, set[str]()
    for each in pipelines.every():
        members = each.recipe.members
        up = any(version_numbers(repository / model) for model in members)
        (wanted if up else absent).update({each.ensemble, *members})
    return absent - wanted


def furnish_with(models: Iterable[str], repository: Path) -> bool:
    """Returns whether anything changed."""
    members, known = pipelines.members(), folders.model_folders()
    return any([_furnish(known[model], repository, model in members) for model in models])


def _furnish(folder: Path, repository: Path, has_versions: bool) -> bool:
    """A standalone model's versions are in its folder; a pipeline member's come from the
    archive."""
    changed = False
    own = [] if has_versions else version_numbers(folder)
    for number in version_numbers(repository / folder.name):
        if not has_versions and number not in own:
            shutil.rmtree(repository / folder.name / str(number))
            changed = True
    for number in own:  # empty ones too: the load then reports it
        (repository / folder.name / str(number)).mkdir(parents=True, exist_ok=True)
    for source in sorted(folder.rglob("*")):
        name = source.relative_to(folder)
        of_a_version = has_versions and name.parts[0].isdecimal()
        if of_a_version or "__pycache__" in name.parts or not source.is_file():
            continue
        target = repository / folder.name / name
        there = target.read_bytes() if target.exists() else None
        wanted = source.read_bytes()
        if has_versions and source.suffix == ".pbtxt":
            wanted = serving_all(wanted)
        # One that is adapted is of the pipeline's own version, which writes it.
        if there != wanted and not (there or b"").startswith(HEAD.encode()):
            files.write_bytes(target, wanted)
            changed = True
    return changed


def serving_all(config: bytes) -> bytes:
    """Only the live version's folder lies in the repository; during a switch, the candidate's too.
    If a file changes then, Triton loads the model again from this config, and must not drop the
    version that is asked."""
    if b"version_policy" not in config:  # which is the newest as well
        return config + b"\n" + EVERY_VERSION
    return NEWEST_VERSION.sub(EVERY_VERSION, config)


def lay_out(pipeline: Pipeline, made: Workspace, layout: Layout, repository: Path) -> None:
    """Lays out a pipeline, each member as its version 1."""
    furnish(pipeline, repository)
    for model, content in contents(pipeline, made, layout).items():
        for name, source in content.items():
            files.put(source, repository / model / "1" / name)
    configure(pipeline, made, layout, repository)


def configure(pipeline: Pipeline, made: Workspace, layout: Layout, repository: Path) -> None:
    """Writes the labels and the models' configs adapted to this machine, where they are others:
    Triton loads anew what was written since."""
    from google.protobuf import text_format

    recipe = pipeline.recipe
    write_labels(pipeline, made, layout.engine, repository)
    for model in sorted({*recipe.members, recipe.ensemble}):
        folder = repository / model
        if variant := recipe.variant(model, layout):
            member = configs.read(folders.model_folder(model) / "configs" / f"{variant}.pbtxt")
            member.version_policy.all.SetInParent()  # as in serving_all
        else:
            member = configs.read(folder / "config.pbtxt")
        set_here = recipe.set_engine(member, layout.engine), recipe.fit(member, made, layout)
        is_switched = configs.set_switches(member, recipe.triton)
        if is_hasty := configs.drop_delay(member, layout.engine):
            console.note(f"{model} waits for no more requests: several instances would starve")
        is_alone = configs.drop_queue(member, layout.engine)
        if is_switched or is_hasty or is_alone or any(set_here):
            _write_if_other(
                folder / "configs" / f"{layout.engine.config}.pbtxt",
                HEAD + text_format.MessageToString(member),
            )
    files.let_all_read(repository)


def write_labels(
    pipeline: Pipeline, made: Workspace, engine: Engine, repository: Path
) -> list[str]:
    """Those of the ensemble, of the network, and of other ensembles that have this one's and are
    laid out; returns the others whose labels changed."""
    if network := pipeline.recipe.network_model(engine):
        _write_labels(network, pipeline, made, repository)
    write_ensemble_labels(pipeline, made, repository)
    alike = (each for each in pipelines.others() if each.recipe.labels_owner == pipeline.ensemble)
    there = (each for each in alike if (repository / each.ensemble / LABELS).exists())
    return [each.ensemble for each in there if write_ensemble_labels(each, made, repository)]


def write_ensemble_labels(pipeline: Pipeline, made: Workspace, repository: Path) -> bool:
    return _write_labels(pipeline.ensemble, pipeline, made, repository)


def _write_labels(model: str, pipeline: Pipeline, made: Workspace, repository: Path) -> bool:
    lines = pipeline.recipe.label_lines(made, repository)
    return lines is not None and _write_if_other(repository / model / LABELS, lines)


def _write_if_other(file: Path, text: str) -> bool:
    if is_other := not file.exists() or file.read_bytes() != text.encode():
        files.write(file, text)
    return is_other


def version_numbers(model: Path) -> list[int]:
    """As Triton sees them: folders whose name is a number."""
    found = (path.name for path in model.glob("[1-9]*") if path.is_dir())
    return sorted(int(name) for name in found if name.isdecimal())


def config_in_use(repository: Path, model: str, engine: Engine) -> ModelConfig:
    """The config as the server reads it."""
    named = repository / model / "configs" / f"{engine.config}.pbtxt"
    return configs.read(named if named.exists() else repository / model / "config.pbtxt")
