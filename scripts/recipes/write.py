"""Recipe -> model folders.

    python -m scripts.recipes.write --recipe recipes/resnet50.yaml --out model_repository

Writes each model's config.pbtxt and the files that all pipelines of a kind share.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from scripts.base import files
from scripts.base.errors import guarded
from scripts.recipes.folders import MODELS
from scripts.recipes.recipe import Recipe
from scripts.recipes.schema import load


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    write(load(options.recipe), options.out)
    files.let_all_read(options.out)
    return 0


def write(recipe: Recipe, out: Path) -> None:
    contents = recipe.files()  # may refuse: before anything is written
    for source, model in recipe.shared().items():
        if (out / model).resolve() != MODELS / source:
            _copy(MODELS / source, out / model, ("1/*.py", "warmup/*"))
    for path, content in contents.items():
        files.write(out / path, content)
    # Triton needs a version folder for an ensemble, and git needs a file in it.
    files.write(out / recipe.ensemble / "1" / ".gitkeep", "")


def _copy(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for path in source.glob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


if __name__ == "__main__":
    sys.exit(guarded(main))
