"""Is the running server healthy, by its answers and by its keeper's notes?"""

from __future__ import annotations

from bundle_serving.health import reason_not_to_trust
from scripts.stacks.stack import Stack
from scripts.stacks.state import State


def unhealthy_reason(stack: Stack, server: State, pipeline: str) -> str | None:
    """None if it answers requests and its keeper is running."""
    if reason := reason_not_to_trust(server.http, pipeline):
        return reason
    if not stack.alive():
        return "it answers, but its keeper is gone"
    kept = stack.keeper_state()
    if lacking := kept.get("lacking"):
        return f"{', '.join(lacking)} lacks a process, which the keeper restores"
    return None if kept.get("ready") else str(kept.get("reason", "its keeper has written no notes"))
