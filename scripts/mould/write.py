"""Recipe -> model folders.

    python -m scripts.mould.write --recipe recipes/resnet50.yaml --out model_repository

Writes each model's config.pbtxt, and the files that all pipelines of one kind share. Of a foreign
network (source: net.onnx) also the network itself and the labels: the folder can be served at once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from bundle_serving.pictures import Transform
from scripts import files
from scripts.bootstrap import ROOT
from scripts.errors import UserError, guarded
from scripts.mould import array, cascade, image, text
from scripts.mould.recipe import Array, Cascade, Image, Recipe, Text, load
from scripts.pipeline import placing

# The first pipelines of each kind, whose code the others are given.
MOULD = ROOT / "model_repository"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    recipe = load(options.recipe)
    write(recipe, options.out)
    if isinstance(recipe, Image) and recipe.source.endswith(".onnx"):
        place_network(recipe, options.recipe.parent, options.out)
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
            return array.configs(recipe)
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
            return array.shared(recipe)
        case Cascade():
            return cascade.shared(recipe)
    return image.shared(recipe)


def _copy(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for path in source.glob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def place_network(recipe: Image, beside: Path, out: Path) -> None:
    from scripts.mould.foreign import adopted

    models, pictures = recipe.models, recipe.pictures
    labels = _labels(recipe, beside)
    network = adopted(beside / recipe.source, pictures)
    version = out / f"{models.network}_{image.ON_CPU}" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.onnx").write_bytes(network.SerializeToString())
    placing.compute_as_exported(version)
    transform = Transform(pictures.resize, pictures.crop, pictures.interpolation)
    files.write(out / models.preprocessing / "1" / "transform.json", transform.dump())
    files.write(out / models.ensemble / "labels.txt", "".join(f"{each}\n" for each in labels))


def _labels(recipe: Image, beside: Path) -> list[str]:
    if not recipe.labels:
        return [f"class {number}" for number in range(recipe.classes)]
    path = beside / recipe.labels
    try:
        labels = path.read_text().splitlines()
    except OSError as fault:
        raise UserError(f"no labels at {path} ({fault.strerror})", "name a file") from None
    if len(labels) != recipe.classes:
        raise UserError(
            f"{path} has {len(labels)} lines, and the network {recipe.classes} classes",
            "give one label a line, in the network's order",
        )
    return labels


if __name__ == "__main__":
    sys.exit(guarded(main))
