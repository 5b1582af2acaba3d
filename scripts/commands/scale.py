"""Starts more servers on the swarm, or stops some.

make scale REPLICAS=4
"""

from __future__ import annotations

from collections import Counter

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import state
from scripts.stacks.swarm import SwarmStack


def main() -> int:
    replicas = Settings.load().replicas
    known = state.load()
    if known is None or known.flavour != "swarm":
        raise UserError("no swarm is up", "start it: make swarm-up REPLICAS=2")
    if replicas is None:
        raise UserError("no REPLICAS given", "say how many servers: make scale REPLICAS=4")
    stack = SwarmStack(known.settings_at_start)
    with lock.one_at_a_time():
        stack.scale(known, replicas)
    on = Counter(task.node for task in stack.tasks())
    spread = ", ".join(f"{count} on {node}" for node, count in sorted(on.items()))
    console.note(f"servers: {spread}")
    return 0
