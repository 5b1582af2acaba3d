"""Shows the models that the server knows: version, state, and what it was built from.

    make models

Models that no pipeline uses are shown once someone loads them.
"""

from scripts.artefacts.manifest import Manifest
from scripts.base import tables
from scripts.repository import live
from scripts.server.triton import models
from scripts.server.triton.models import Model
from scripts.stacks import state


def main() -> None:
    server = state.require()
    served = models.list_needed()
    known = (each for each in models.index(server) if each.state or each.name in served)
    rows = (make_row(each, server.main) for each in known if not was_replaced(each))
    tables.show("lrll", ("model", "version", "state", "made from"), rows)


def was_replaced(model: Model) -> bool:
    """By a rollout: Triton names each such version until its next start."""
    folder = live.REPOSITORY / model.name / model.version
    return model.reason == "unloaded" and not folder.is_dir()


def make_row(model: Model, main: str) -> tuple[str, str, str, str]:
    manifest = Manifest.load(live.REPOSITORY / model.name / model.version / "manifest.json")
    made = "the main pipeline" if model.name == main else manifest.describe() if manifest else ""
    about = "; ".join(filter(None, (made, model.reason)))
    return model.name, model.version, model.state or "absent", about
