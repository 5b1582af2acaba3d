"""What is known to be wrong with the tritonserver in use: requirements/known_flaws.json."""

import json
from typing import Any

from scripts.base.paths import REQUIREMENTS

PATH = REQUIREMENTS / "known_flaws.json"


def summary(version: str) -> str:
    """In one line."""
    known = read_listed()
    flaws = known["tritonserver"].get(version)
    if flaws is None:
        return f"tritonserver {version}: its flaws are not in {PATH.name}"
    of = f"tritonserver {version} ({flaws['release']})"
    if not flaws["fixed_later"]:
        return f"{of}: no flaw known on {known['asked']} that a later release fixes"
    return (
        f"{of}: later releases fix {flaws['fixed_later']} known flaws (as of {known['asked']}); "
        f"{flaws['worst']}, so {flaws['defence']}"
    )


def read_listed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found
