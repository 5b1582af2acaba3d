"""The pipelines of pictures: the first, and those that `make add-model` made a recipe of.

pipeline = pipelines.named("birds")     # what MODEL= calls it; "" is the first
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes.image import ON_CPU, ON_GPU
from scripts.recipes.schema import Image, load, load_as

RECIPES = ROOT / "recipes"
FIRST = "resnet50"
TORCHVISION = "torchvision/"

# What can be asked beside the pipelines of pictures.
OTHERS = ("places", "cascade")


@dataclass(frozen=True)
class Engine:
    """The network as one kind of hardware runs it."""

    ending: str  # of its model's name
    config: str  # the name of the configs/ that the server is told to take
    file: str


CPU = Engine(ON_CPU, "cpu", "model.onnx")
GPU = Engine(ON_GPU, "gpu", "model.plan")


@dataclass(frozen=True)
class Pipeline:
    """The folders of model_repository that one pipeline of pictures is made of."""

    name: str
    recipe: Image

    @property
    def first(self) -> bool:
        return not self.name

    @property
    def ensemble(self) -> str:
        return self.recipe.models.ensemble

    @property
    def preprocessing(self) -> dict[str, str]:
        """Its first step, by what that is made with."""
        named = self.recipe.models.preprocessing
        return {"python": named, "dali": f"{named}_dali"}

    @property
    def postprocessing(self) -> str:
        return self.recipe.models.postprocessing

    def network(self, engine: Engine) -> str:
        return f"{self.recipe.models.network}_{engine.ending}"

    @property
    def programs(self) -> dict[str, str]:
        steps = self.preprocessing
        return {
            steps["python"]: "model.py",
            steps["dali"]: "dali.py",
            self.postprocessing: "model.py",
        }

    @property
    def members(self) -> set[str]:
        """The models whose version folders come with a version of it."""
        return {self.network(CPU), self.network(GPU), *self.programs}

    @property
    def labels(self) -> Path | None:
        """A file; None where torchvision has them for the architecture, or nobody."""
        said = self.recipe.labels
        return None if said in ("torchvision", "") else (RECIPES / said).resolve()

    @property
    def said(self) -> dict[str, str]:
        """The settings that its recipe says."""
        source, weights = self.recipe.source, self.recipe.weights
        if source.endswith(".onnx"):
            network = {"ARCH": "", "WEIGHTS": str((RECIPES / source).resolve())}
        else:
            named = weights in ("default", "random")
            file = weights if named else str((RECIPES / weights).resolve())
            network = {"ARCH": source.removeprefix(TORCHVISION), "WEIGHTS": file}
        return network | {"PRECISION": self.recipe.precision}


@cache
def first() -> Pipeline:
    return Pipeline("", load_as(RECIPES / f"{FIRST}.yaml", Image))


def added() -> list[Pipeline]:
    found = {path.stem: load(path) for path in sorted(RECIPES.glob("*.yaml")) if path.stem != FIRST}
    return [Pipeline(name, recipe) for name, recipe in found.items() if isinstance(recipe, Image)]


def every() -> list[Pipeline]:
    return [first(), *added()]


def members() -> set[str]:
    """Of all of them. Read once for many models: it is a file for each recipe."""
    return {model for pipeline in every() for model in pipeline.members}


def named(name: str, others: Iterable[str] = ()) -> Pipeline:
    for pipeline in every():
        if pipeline.name == name:
            return pipeline
    have = ", ".join([*(each.name for each in added()), *others])
    raise UserError(
        f"MODEL={name} is not known" + (f" (there: {have})" if have else ""),
        f"leave it out, or add it: make add-model NAME={name} ARCH=resnet18",
    )


def asked(environment: Mapping[str, str] = os.environ) -> Pipeline:
    """The one that MODEL= names, and without it the first."""
    return named(environment.get("MODEL", ""))
