"""Where recipes and model folders are: the project's, and the user's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.base.paths import KINDS, ROOT, resolve_own
from scripts.settings.settings import Settings

MODELS = ROOT / "model_repository"


@dataclass(frozen=True)
class Own:
    """The user's own recipes, model folders and kinds of pipelines: OWN=."""

    folder: Path

    @property
    def recipes(self) -> Path:
        return self.folder / "recipes"

    @property
    def models(self) -> Path:
        return self.folder / "model_repository"

    @property
    def kinds(self) -> Path:
        return self.folder / "kinds"

    @property
    def networks(self) -> Path:
        """What was made of networks that came from elsewhere, each in a folder of its name."""
        return self.folder / "networks"


def own() -> Own:
    return Own(resolve_own(Settings.load().own))


def model_folder(model: str) -> Path:
    """The folder with its configs and programs."""
    return model_folders().get(model, MODELS / model)


def model_folders() -> dict[str, Path]:
    folders = (MODELS, *_each_kinds("model_repository"), own().models)
    return {path.name: path for folder in folders for path in sorted(folder.glob("*/"))}


def recipe_files() -> list[Path]:
    folders = (MODELS, *_each_kinds(""), own().recipes)
    return [path for folder in folders for path in sorted(folder.glob("[!.]*.yaml"))]


def _each_kinds(name: str) -> Iterator[Path]:
    """What each kind has in its folder, the user's own last."""
    for kinds in (KINDS, own().kinds):
        yield from (folder / name for folder in sorted(kinds.glob("*/")))
