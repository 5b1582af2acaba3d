"""What the export made -> the folders of the pipeline, ready to be served."""

from __future__ import annotations

from pathlib import Path

from scripts import files
from scripts.mould.recipe import Array
from scripts.pipeline import placing


def lay_out(made: Path, recipe: Array, repository: Path) -> bool:
    """Whether there was anything to be changed."""
    network = repository / recipe.models.network / "1"
    names = repository / recipe.models.postprocessing / "1" / "labels.txt"
    places = {"labels.txt": names, "model.onnx": network / "model.onnx"}
    changed = placing.put(made, places, network)
    files.let_all_read(repository)
    return changed
