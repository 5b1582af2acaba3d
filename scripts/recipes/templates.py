"""The model folders of a pipeline that is made for the user: copies of those of its kind's example,
with what its recipe says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.folders import model_folder
from scripts.recipes.layout import CPU, GPU
from scripts.recipes.recipe import Recipe
from scripts.recipes.schema import load

HEAD = "# Copied from {}, with what the recipe says. Yours to edit.\n"


def write(recipe: Recipe, out: Path) -> None:
    example = recipe.example_path()
    if not example.exists():  # of a kind of the user's
        wanted = ", ".join(recipe.model_names.values())
        raise UserError(f"{recipe.ensemble} has no model folders", f"write {wanted} in {out}")
    contents = dict(_contents(recipe, example, _names(recipe, example)))  # before any is written
    # The ensemble last: where it is, all are.
    for path in sorted(contents, key=lambda path: path.startswith(f"{recipe.ensemble}/")):
        files.write_bytes(out / path, contents[path])


def _names(recipe: Recipe, example: Path) -> dict[str, str]:
    """Of the example's models -> of the recipe's."""
    if example.is_dir():  # which are called what they are for
        return dict(recipe.model_names)
    template = load(example)
    names = dict(zip(template.model_names.values(), recipe.model_names.values(), strict=True))
    for engine in (CPU, GPU):
        names |= zip(template.list_borrowed(engine), recipe.list_borrowed(engine), strict=True)
    return names


def _contents(recipe: Recipe, example: Path, names: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    own = {*recipe.model_names.values()}
    for source, model in names.items():
        folder = example / source if example.is_dir() else model_folder(source)
        for path in sorted(folder.rglob("*")) if model in own else ():
            if path.is_file() and "__pycache__" not in path.parts:
                config = path.suffix == ".pbtxt"
                content = (
                    _adapt_config(recipe, path, names).encode() if config else path.read_bytes()
                )
                yield f"{model}/{path.relative_to(folder)}", content
    for name, text in recipe.own_files().items():
        yield name, text.encode()


def _adapt_config(recipe: Recipe, path: Path, names: dict[str, str]) -> str:
    from google.protobuf import text_format

    member = configs.read(path)
    head = HEAD.format(member.name)
    member.name = names[member.name]
    for step in member.ensemble_scheduling.step:
        step.model_name = names[step.model_name]
    recipe.adapt(member)
    return head + text_format.MessageToString(member)
