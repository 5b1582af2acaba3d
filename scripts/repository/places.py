"""What the export made -> the folders of the pipeline, ready to be served."""

from __future__ import annotations

from pathlib import Path

from scripts.base import files
from scripts.recipes.pbtxt import LABELS
from scripts.recipes.schema import Array
from scripts.repository import placing


def lay_out(made: Path, recipe: Array, repository: Path, engine: str) -> bool:
    """Whether there was anything to be changed."""
    network = repository / recipe.models.network / "1"
    names = repository / recipe.models.postprocessing / "1" / LABELS
    changed = placing.put(made, network, engine, {names: LABELS})
    files.let_all_read(repository)
    return changed
