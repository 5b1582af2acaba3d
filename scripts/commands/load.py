"""Loads a model of model_repository, or reloads one that has changed.

    make load TRITON_MODEL=resnet50_onnx

The live version keeps serving until the new one is ready, and stays if that fails to load.
"""

from __future__ import annotations

from pathlib import Path

from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import live, model_folders
from scripts.server import engines, extra, loading, model_control
from scripts.settings import arguments
from scripts.stacks import flavour
from scripts.storage.shared import Shared


def main() -> int:
    server = model_control.server()
    if (named := arguments.load().triton_model) in own_models():
        model_folders.furnish_with([named], live.REPOSITORY)
        Shared(server.started_with, pipelines.first()).push_live()
    name = model_control.named(server)
    folder = live.REPOSITORY / name
    engine = engines.of(flavour.stack(server.flavour, server.started_with))
    in_use = folder.is_dir() and model_folders.config_in_use(live.REPOSITORY, name, engine)
    if in_use and in_use.backend == "python":
        require_its_code(folder)
    with console.waiting(f"loading {name}"):
        loading.load(server.admin, name, model_control.LONGEST_S)
    if name in own_models():
        extra.remember(name)
    for model in model_control.in_memory(server, name):
        if model.state == "READY":
            console.note(f"loaded: {live.called(name, model.version)}, version {model.version}")
    return 0


def own_models() -> set[str]:
    """Models that belong to no pipeline; a pipeline's models come with its version."""
    of_pipelines = pipelines.members() | {each.ensemble for each in pipelines.every()}
    return pipelines.model_folders().keys() - of_pipelines


def require_its_code(model: Path) -> None:
    """Without it, Triton hangs on the load and on every later call for that model."""
    for version in model.iterdir():
        if version.name.isdecimal() and not (version / "model.py").exists():
            raise UserError(
                f"there is no model.py in {model.name}/{version.name}",
                "add it, or remove the folder",
            )
