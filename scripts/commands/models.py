"""Shows the models that the server knows: version, state, and what it was built from.

    make models

Models that no pipeline uses are shown once someone loads them.
"""

from __future__ import annotations

from rich.table import Table

from scripts.artefacts.manifest import Manifest
from scripts.base import console
from scripts.repository import live
from scripts.server import model_control


def main() -> int:
    server = model_control.server()
    served = model_control.pipeline()
    table = Table("model", "version", "state", "made from", "", box=None)
    table.columns[0].no_wrap = True
    for model in model_control.index(server):
        if model.state or model.name in served:
            made = describe_source(model.name, model.version)
            table.add_row(model.name, model.version, model.state or "absent", made, model.reason)
    console.out.print(table, markup=False)
    return 0


def describe_source(model: str, version: str) -> str:
    """From the manifest in the version's folder; empty if there is none."""
    manifest = Manifest.load(live.REPOSITORY / model / version / "manifest.json")
    return manifest.describe() if manifest else ""
