"""Triton models of the user's that belong to no pipeline: laid out, and completed."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.artefacts.exporting import as_words
from scripts.artefacts.step import COMPLETE
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import CPU, Engine
from scripts.repository import live, model_folders
from scripts.server import engines
from scripts.stacks import flavour
from scripts.stacks.state import State

COMPLETED = ROOT / "build" / "run" / "completed.json"
HEAD = "# Made from the model itself, since its folder has no config.pbtxt.\n"


def names() -> set[str]:
    """A pipeline's models come with its version."""
    of_pipelines = pipelines.members() | {each.ensemble for each in pipelines.every()}
    return folders.model_folders().keys() - of_pipelines


def lay_out(model: str, server: State) -> None:
    """Brings the repository up to date with the model's folder."""
    model_folders.furnish_with([model], live.REPOSITORY)
    folder = live.REPOSITORY / model
    stack = flavour.stack_of(server)
    engine = engines.engine_for(stack)
    require_its_code(folder, engine)
    has_config = (folders.model_folder(model) / "config.pbtxt").is_file()
    # NVIDIA's server completes configs by itself.
    if not has_config and engine is CPU:
        stack.run_step(COMPLETE, *as_words({"model": folder, "out": COMPLETED}))
        files.write(folder / "config.pbtxt", HEAD + _as_text(COMPLETED))
        COMPLETED.unlink()
    files.let_all_read(folder)


def _as_text(path: Path) -> str:
    from google.protobuf import json_format, text_format

    from bundle_serving.protocol.messages import ModelConfig

    try:
        config = json_format.ParseDict(json.loads(path.read_text()), ModelConfig())
    except json_format.ParseError as fault:
        raise UserError(
            f"the config that the model says of itself is not valid ({fault})",
            "write its config.pbtxt",
        ) from None
    return text_format.MessageToString(config)


def require_its_code(model: Path, engine: Engine) -> None:
    """Without it, Triton hangs on the load and on every later call for that model."""
    if not _runs_python(model, engine):
        return
    for version in model.iterdir():
        if version.name.isdecimal() and not (version / "model.py").exists():
            raise UserError(
                f"there is no model.py in {model.name}/{version.name}",
                "add it, or remove the folder",
            )


def _runs_python(model: Path, engine: Engine) -> bool:
    if (model / "config.pbtxt").is_file():
        in_use = model_folders.config_in_use(model.parent, model.name, engine)
        return str(in_use.backend) == "python"
    return any(model.glob("[1-9]*/model.py"))
