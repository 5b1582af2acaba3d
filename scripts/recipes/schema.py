"""Reads recipes strictly: unknown keys are refused.

recipe = load(Path("model_repository/resnet50.yaml"))
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

import kinds
from scripts.base.errors import UserError
from scripts.base.parts import MAIN_KIND
from scripts.base.paths import ROOT
from scripts.recipes.recipe import Part, Recipe

MOST_SHOWN = 200  # letters of a wrong value
# Of Recipe's methods, as kinds of users may still have them.
RENAMED = {
    "answered_by_itself": "is_own_answer",
    "beside": "path_beside",
    "borrowed": "list_borrowed",
    "decoupled": "is_decoupled",
    "expected": "expect_scores",
    "labelled_like": "labels_owner",
}


def load(path: Path) -> Recipe:
    content = _read(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a recipe", "see kinds/ for examples")
    kind = kind_named(content.get("kind"), path)
    try:
        return kind.model_validate(content).lying_in(path.parent)
    except ValidationError as fault:
        raise _explain_error(path, kind, fault.errors()[0]) from None


def kind_named(name: Any, path: Path) -> type[Recipe]:
    """From the project, or from the folder that contains the recipe's folder."""
    above = path.resolve().parents[1]
    own = str(above if above.name == kinds.__name__ else above / kinds.__name__)
    if own not in kinds.__path__:
        kinds.__path__.append(own)
    known = dict(_find_kinds()) | {MAIN_KIND: f"scripts.recipes.{MAIN_KIND}"}
    if name not in known:
        raise UserError(
            f"{path}: kind {name!r} is not known" if name else f"{path}: kind is missing",
            f"choose one of: {', '.join(known)}",
        )
    module = importlib.import_module(known[name])
    found = (each for each in vars(module).values() if isinstance(each, type))
    kind = next(
        each for each in found if issubclass(each, Recipe) and each.__module__ == module.__name__
    )
    if earlier := [name for name in vars(kind) if name in RENAMED]:
        raise UserError(
            f"kind {name} defines {earlier[0]}, as earlier releases wanted it",
            f"call it {RENAMED[earlier[0]]} in {module.__file__}",
        )
    return kind


def _find_kinds() -> Iterator[tuple[str, str]]:
    """The name of each kind, and of the module with its class: a folder's recipe.py, or a file."""
    found = [path for folder in kinds.__path__ for path in sorted(Path(folder).glob("*"))]
    for path in found:
        if (path / "recipe.py").is_file():
            yield path.name, f"{kinds.__name__}.{path.name}.recipe"
        elif path.suffix == ".py" and path.stem != "__init__":
            yield path.stem, f"{kinds.__name__}.{path.stem}"


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except OSError as fault:
        raise UserError(f"cannot read {path} ({fault.strerror})", "see kinds/") from None
    except yaml.YAMLError as fault:
        detail = " ".join(str(fault).split())
        raise UserError(f"{path} is not valid YAML ({detail})", "fix that line") from None


def _explain_error(path: Path, kind: type[Recipe], error: ErrorDetails) -> UserError:
    keys = _keys(kind, error["loc"])
    key = ".".join(map(str, keys)) or "the recipe"
    if error["type"] == "extra_forbidden":
        allowed = ", ".join(_part(kind, keys[:-1]).model_fields)
        return UserError(f"{path}: unknown key {key}", f"known there: {allowed}")
    if error["type"] == "missing":
        return UserError(
            f"{path}: {key} is missing", f"{kind.example_path().relative_to(ROOT)} shows it"
        )
    message = error["msg"].removeprefix("Value error, ")
    given = f"{error['input']!r}"[:MOST_SHOWN]  # perhaps a whole part of the recipe
    return UserError(f"{path}: {key}: {given}", message[:1].lower() + message[1:])


def _keys(kind: Any, location: tuple[int | str, ...]) -> list[int | str]:
    """Without the names of the types that a value might have had."""
    for depth, key in enumerate(location, 1):
        fields = getattr(kind, "model_fields", {})
        if key not in fields:
            return list(location[: depth if fields else depth - 1])
        kind = fields[key].annotation
    return list(location)


def _part(kind: type[Part], keys: list[int | str]) -> type[Part]:
    found: Any = kind
    for key in keys:
        found = found.model_fields[key].annotation
    return found  # type: ignore[no-any-return]
