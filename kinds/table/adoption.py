"""Models of tables, as make add-model takes them: FROM=file."""

from collections.abc import Mapping
from pathlib import Path

from kinds.table.recipe import Networked, Table
from kinds.table.rows import MAKERS
from scripts.base.errors import UserError
from scripts.repository import custom

TAKEN = "a model of scikit-learn (.skops), XGBoost (.json, .ubj) or LightGBM (.txt)"
# In one request.
MOST_ROWS = 1024
LIGHTGBM = b"tree"  # its text begins so


def takes(path: Path) -> bool:
    if not (path.is_file() and path.suffix in MAKERS):
        return False
    return path.suffix != ".txt" or path.read_bytes()[: len(LIGHTGBM)] == LIGHTGBM


def make_recipe(name: str, model: Path, given: Mapping[str, str]) -> Table:
    """What its file says, the export finds out."""
    if given.get("SAMPLE"):
        raise UserError(f"SAMPLE= is a picture, and {model.name} takes none", "omit it")
    if given.get("WEIGHTS"):
        raise UserError(f"{model.name} is already a complete model", "omit WEIGHTS")
    labels = custom.labels_given(name, given)
    return Table(
        kind="table",
        models=Networked(ensemble=name, network=name),
        source=custom.beside_recipes(model),
        labels=custom.beside_recipes(labels) if labels else "",
        most_rows=MOST_ROWS,
        instances=1,
    )
