"""Recipe -> model folders.

    python -m scripts.recipes.write --recipe recipes/resnet50.yaml --out model_repository

Writes each model's config.pbtxt, and the files that all pipelines of one kind share.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.base.paths import ROOT
from scripts.recipes import cascade, image, places, text
from scripts.recipes.schema import Array, Cascade, Recipe, Text, load

# The first pipelines of each kind, whose code the others are given.
MOULD = ROOT / "model_repository"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    write(load(options.recipe), options.out)
    files.let_all_read(options.out)
    return 0


def write(recipe: Recipe, out: Path) -> None:
    contents = made(recipe)  # refused before anything is written
    for source, model in shared(recipe).items():
        if (out / model).resolve() != MOULD / source:
            _copy(MOULD / source, out / model, ("1/*.py", "warmup/*"))
    for path, content in contents.items():
        files.write(out / path, content)
    # Triton wants a version folder of an ensemble, and git a file in it.
    files.write(out / recipe.models.ensemble / "1" / ".gitkeep", "")


def made(recipe: Recipe) -> dict[str, str]:
    """Path in the repository -> text."""
    match recipe:
        case Text():
            return text.configs(recipe)
        case Array():
            return places.configs(recipe)
        case Cascade():
            return cascade.configs(recipe)
    warmup = Path("preprocessing", "warmup", recipe.warmup)
    if not (MOULD / warmup).is_file():
        raise UserError(f"no {warmup} in {MOULD.name}", "put the recipe's warmup picture there")
    return image.configs(recipe, (MOULD / warmup).stat().st_size)


def shared(recipe: Recipe) -> dict[str, str]:
    """Folder of the first pipeline of this kind -> the folder that gets its code."""
    match recipe:
        case Text():
            return text.shared(recipe)
        case Array():
            return places.shared(recipe)
        case Cascade():
            return cascade.shared(recipe)
    return image.shared(recipe)


def _copy(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for path in source.glob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


if __name__ == "__main__":
    sys.exit(guarded(main))
