"""Is the server that was brought up whole? Asked, and as its keeper knows it."""

from __future__ import annotations

from bundle_serving.health import reason_not_to_trust
from scripts.stacks.flavour import Stack
from scripts.stacks.state import State


def unhealthy_reason(stack: Stack, server: State, pipeline: str) -> str | None:
    """None of one that answers pictures, with whoever restores it at work."""
    if reason := reason_not_to_trust(server.http, pipeline):
        return reason
    if not stack.alive():
        return "it answers, but its keeper is gone"
    if server.flavour == "gpu":  # which has no keeper of ours
        return None
    kept = stack.kept()
    return None if kept.get("ready") else str(kept.get("reason", "its keeper has noted nothing"))
