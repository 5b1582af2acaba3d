"""A switch that was cut off (by kill -9, or the machine) is undone by whoever comes next."""

from __future__ import annotations

from scripts.errors import UserError
from scripts.host import console, engines, flavour
from scripts.host.state import State
from scripts.versions import history
from scripts.versions.archive import Version
from scripts.versions.control import Control
from scripts.versions.shared import Shared
from scripts.versions.switch import mend


def restore(server: State | None, version: Version, shared: Shared) -> bool:
    """Says what it found. False where the server that is up cannot be put in order."""
    cut = history.cut_off(history.read(version.pipeline))
    if cut is None:
        return True
    console.note(f"the {cut.how} of version {cut.version} was cut off; {version.named} stays")
    try:
        if server:
            limit = float(server.started_with["START_TIMEOUT"])
            engine = engines.of(flavour.stack(server.flavour, server.started_with))
            mend(Control(server.grpc, limit), engine, version, shared)
    except UserError as fault:
        console.note(f"the server cannot be put in order ({fault.cause})")
        return False
    shared.record(history.STAYED, cut.version, cut.how, "cut off")
    return True
