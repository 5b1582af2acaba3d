"""A classifier of somebody's own: the recipe that is made of what they name, and its folders."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.kinds.image import TORCHVISION, Image
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.write import write
from scripts.repository import archive, live
from scripts.settings.architectures import require_known
from scripts.steps.manifest import lines_of

NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
HEAD = "# Pictures -> what they show: `make classify MODEL={name} IMG=…`.\n"


def require_a_name(name: str) -> None:
    if not NAME.fullmatch(name):
        said = f"NAME={name} is not a valid name" if name else "no NAME given"
        raise UserError(said, "use lower-case letters, digits and _: make add-model NAME=birds")


def require_new(pipeline: Pipeline) -> None:
    """None of its names may exist: if adding it fails, all of its files are removed again."""
    wanted = {pipeline.name, pipeline.ensemble, *pipeline.recipe.members}
    there = pipelines.model_folders().keys() | pipelines.recipes().keys()
    if taken := sorted(wanted & there):
        raise UserError(f"{taken[0]} already exists", "choose another NAME")
    if archive.numbers(pipeline):
        kept = archive.home(pipeline).relative_to(ROOT)
        raise UserError(
            f"versions of an earlier {pipeline.name} are in {kept}",
            "choose another NAME, or remove them",
        )


def recipe(name: str, said: Any) -> Image:
    """Like the main pipeline, except for the names and the network."""
    network = _foreign(said) if said.get("ONNX") else _of_torchvision(said)
    first = _first().model_dump(mode="json")
    first["models"] = {
        "ensemble": name,
        "preprocessing": f"{name}_preprocessing",
        "network": name,
        "postprocessing": f"{name}_postprocessing",
    }
    pictures = first["pictures"] | network.pop("pictures", {})
    recipe = Image.model_validate(first | network | {"pictures": pictures})
    return recipe.lying_in(pipelines.own().recipes)


def _first() -> Image:
    recipe = pipelines.first().recipe
    assert isinstance(recipe, Image)
    return recipe


def _foreign(said: Any) -> dict[str, Any]:
    from scripts.steps.adopt import require_a_label_each
    from scripts.steps.signature import signature

    if said.get("ARCH") or said.get("WEIGHTS"):
        raise UserError(
            "ONNX= is already a complete network", "omit ARCH and WEIGHTS, or omit ONNX"
        )
    path = Path(said["ONNX"]).expanduser().resolve()
    facts, labels = signature(path), _labels(said)
    if labels:
        require_a_label_each(lines_of(labels), facts.classes, labels, path)
    return {
        "source": _beside_recipes(path),
        "labels": _beside_recipes(labels) if labels else "",
        "classes": facts.classes,
        # As in most trainings: resized to an eighth more than the crop.
        "pictures": {"crop": facts.crop, "resize": round(facts.crop * 8 / 7)},
    }


def _of_torchvision(said: Any) -> dict[str, Any]:
    if not (said.get("ARCH") or said.get("WEIGHTS")):
        raise UserError(
            "no network given",
            "give ONNX=net.onnx, or one of torchvision's: ARCH=resnet18 (and WEIGHTS=mine.pth)",
        )
    arch = said.get("ARCH") or "resnet50"
    require_known(arch)
    weights, labels = said.get("WEIGHTS") or "default", _labels(said)
    if weights not in ("default", "random"):
        weights = _beside_recipes(Path(weights).expanduser().resolve())
    return {
        "source": TORCHVISION + arch,
        "weights": weights,
        "labels": _beside_recipes(labels) if labels else "torchvision",
        "classes": len(lines_of(labels)) or _first().classes,
    }


def _labels(said: Any) -> Path | None:
    return Path(said["LABELS"]).expanduser().resolve() if said.get("LABELS") else None


def _beside_recipes(path: Path) -> str:
    """File names in a recipe are relative to it."""
    return os.path.relpath(path, pipelines.own().recipes)


@contextmanager
def written(pipeline: Pipeline) -> Iterator[None]:
    """Writes its recipe and model folders; removes them again if what follows fails."""
    own = pipelines.own()
    path = own.recipes / f"{pipeline.name}.yaml"
    said = yaml.safe_dump(
        pipeline.recipe.model_dump(mode="json"), sort_keys=False, default_flow_style=None
    )
    models = {name.partition("/")[0] for name in pipeline.recipe.files()}
    try:
        write(pipeline.recipe, own.models)
        files.write(path, HEAD.format(name=pipeline.name) + said)
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        folders = [home / model for home in (own.models, live.REPOSITORY) for model in models]
        for folder in (*folders, archive.home(pipeline)):
            shutil.rmtree(folder, ignore_errors=True)
        raise
