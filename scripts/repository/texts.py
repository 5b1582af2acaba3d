"""What the export made -> the folders of the pipeline, ready to be served."""

from __future__ import annotations

from pathlib import Path

from scripts.base import files
from scripts.recipes.schema import Text
from scripts.recipes.text import TOKENIZER
from scripts.repository import placing


def lay_out(made: Path, recipe: Text, repository: Path, engine: str) -> bool:
    """Whether there was anything to be changed."""
    network = repository / f"{recipe.models.network}_{engine}" / "1"
    tokenizer = repository / recipe.models.preprocessing / "1" / TOKENIZER / "tokenizer.json"
    changed = placing.put(made, network, engine, {tokenizer: "tokenizer.json"})
    files.let_all_read(repository)
    return changed
