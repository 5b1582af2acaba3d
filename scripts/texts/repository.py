"""What the export made -> the folders of the pipeline, ready to be served."""

from __future__ import annotations

from pathlib import Path

from scripts import files
from scripts.mould.recipe import Text
from scripts.mould.text import TOKENIZER
from scripts.pipeline import placing


def lay_out(made: Path, recipe: Text, repository: Path, engine: str) -> bool:
    """Whether there was anything to be changed."""
    network = repository / f"{recipe.models.network}_{engine}" / "1"
    tokenizer = repository / recipe.models.preprocessing / "1" / TOKENIZER / "tokenizer.json"
    changed = placing.put(made, network, engine, {"tokenizer.json": tokenizer})
    files.let_all_read(repository)
    return changed
