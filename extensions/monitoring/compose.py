"""What Compose files ask of it."""

from extensions.monitoring.containers import FOLDER, SOURCE
from scripts.base.paths import ROOT


def list_variables() -> dict[str, str]:
    """What `make monitoring` has written, or what is the same for all."""
    folder = FOLDER if FOLDER.exists() else SOURCE
    return {"MONITORING": f"./{folder.relative_to(ROOT)}"}
