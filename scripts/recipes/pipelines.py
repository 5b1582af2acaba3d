"""Every pipeline: the project's, and those in the user's own folder.

pipeline = pipelines.find_pipeline("birds")     # the value of MODEL=; "" is the main one

Which one is the main one: MAIN= says it, else what `make up` has noted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bundle_serving.process import main_pipeline
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders
from scripts.recipes.folders import own
from scripts.settings import arguments
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from scripts.recipes.recipe import Recipe

# The main one where the user names no other: ImageNet's ResNet50.
DEFAULT = "resnet50"

# Among the versions, and in backups like them.
NOTE = ROOT / "build" / "versions" / main_pipeline.FILE


@dataclass(frozen=True)
class Pipeline:
    name: str
    source: Path | Recipe  # a file is read when its content is needed

    @cached_property
    def recipe(self) -> Recipe:
        from scripts.recipes.schema import load  # slow to import; commands that only ask do without

        return load(self.source) if isinstance(self.source, Path) else self.source

    @property
    def is_main(self) -> bool:
        """Whether `make up` starts the server with it."""
        return self.name == main_name()

    @property
    def mark(self) -> str:
        """Its name in messages, which go without that of the main one."""
        return "" if self.is_main else self.name

    @property
    def option(self) -> str:
        """What a command takes to mean it."""
        return "" if self.is_main else f" MODEL={self.name}"

    @property
    def folder(self) -> str:
        """Where its versions lie among all: those of the project's own lie at the top."""
        return "" if self.name == DEFAULT else self.name

    @property
    def ensemble(self) -> str:
        return main_pipeline.DEFAULT if self.name == DEFAULT else self.recipe.ensemble

    @property
    def candidate(self) -> str:
        """The ensemble of a version that is tried beside the live one."""
        return f"{self.ensemble}_candidate"


@cache
def main_name() -> str:
    return Settings.load().main or find_noted()


def find_noted() -> str:
    """What the last `make up` had as the main one."""
    try:
        return NOTE.read_text().strip() or DEFAULT
    except OSError:
        return DEFAULT


def make_main(name: str) -> None:
    """For this command, as if MAIN= said so."""
    os.environ[Settings.main.name] = name
    main_name.cache_clear()


def note_main() -> None:
    """For later commands."""
    if find_noted() != main_name():
        files.write(NOTE, main_name() + "\n")


def forget_main() -> None:
    NOTE.unlink(missing_ok=True)


def main() -> Pipeline:
    known = recipes()
    if (name := main_name()) not in known:
        raise UserError(
            f"the main pipeline is to be {name}, which does not exist",
            f"choose one: make up MAIN={', '.join(known)}",
        )
    return Pipeline(name, known[name])


def recipes() -> dict[str, Path]:
    """Paths of all recipes by pipeline name."""
    return {path.stem: path for path in folders.recipe_files()}


def of_the_user() -> dict[str, Path]:
    return {name: path for name, path in recipes().items() if path.is_relative_to(own().folder)}


def others() -> list[Pipeline]:
    return [Pipeline(name, path) for name, path in recipes().items() if name != main_name()]


def every() -> list[Pipeline]:
    return [main(), *others()]


def members() -> set[str]:
    """Members of all pipelines. Call once for many models: it reads every recipe."""
    return {model for pipeline in every() for model in pipeline.recipe.members}


def find_pipeline(name: str) -> Pipeline:
    if not name:
        return main()
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
