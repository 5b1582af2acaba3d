"""What the export made -> the folders of the pipeline, ready to be served."""

from __future__ import annotations

from pathlib import Path

from scripts import files
from scripts.mould.recipe import Text
from scripts.mould.text import TOKENIZER


def lay_out(made: Path, recipe: Text, repository: Path) -> bool:
    """Whether there was anything to be changed."""
    tokens = repository / recipe.models.preprocessing / "1" / TOKENIZER
    network = repository / f"{recipe.models.network}_onnx" / "1"
    manifest = network / "manifest.json"
    if _stands(made, manifest):
        return False
    # The manifest goes last: where it stands, the files it describes stand too.
    manifest.unlink(missing_ok=True)
    files.place(made / "tokenizer.json", tokens / "tokenizer.json")
    files.place(made / "model.onnx", network / "model.onnx")
    files.place(made / "manifest.json", manifest)
    files.let_all_read(repository)
    return True


def _stands(made: Path, manifest: Path) -> bool:
    try:
        return manifest.read_bytes() == (made / "manifest.json").read_bytes()
    except OSError:
        return False
