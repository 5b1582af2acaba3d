"""Every pipeline: the project's, and those in the user's own folder.

pipeline = pipelines.named("birds")     # the value of MODEL=; "" is the main one
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bundle_serving import PIPELINE
from scripts.base.errors import UserError
from scripts.recipes import folders
from scripts.recipes.folders import own
from scripts.settings import arguments

if TYPE_CHECKING:
    from scripts.recipes.recipe import Recipe

FIRST = "resnet50"


@dataclass(frozen=True)
class Pipeline:
    name: str
    source: Path | Recipe  # a file is read when its content is needed

    @cached_property
    def recipe(self) -> Recipe:
        from scripts.recipes.schema import load  # slow to import; commands that only ask do without

        return load(self.source) if isinstance(self.source, Path) else self.source

    @property
    def first(self) -> bool:
        """The main pipeline, which `make up` starts the server with."""
        return not self.name

    @property
    def ensemble(self) -> str:
        return PIPELINE if self.first else self.recipe.ensemble


@cache
def first() -> Pipeline:
    return Pipeline("", recipes()[FIRST])


def recipes() -> dict[str, Path]:
    """Paths of all recipes by pipeline name."""
    return {path.stem: path for path in folders.recipe_files()}


def of_the_user() -> dict[str, Path]:
    return {name: path for name, path in recipes().items() if path.is_relative_to(own().folder)}


def others() -> list[Pipeline]:
    return [Pipeline(name, path) for name, path in recipes().items() if name != FIRST]


def every() -> list[Pipeline]:
    return [first(), *others()]


def members() -> set[str]:
    """Members of all pipelines. Call once for many models: it reads every recipe."""
    return {model for pipeline in every() for model in pipeline.recipe.members}


def find_pipeline(name: str) -> Pipeline:
    if name in ("", FIRST):
        return first()
    known = recipes()
    if name not in known:
        raise UserError(
            f"MODEL={name} is not a pipeline (known: {', '.join(known)})",
            f"choose one, or add it: make add-model NAME={name} ARCH=resnet18",
        )
    return Pipeline(name, known[name])


def find_asked_pipeline() -> Pipeline:
    """The pipeline that MODEL= names; without MODEL, the main one."""
    return find_pipeline(arguments.load().model)
