"""Starts more servers on the swarm, or stops some.

make scale REPLICAS=4
"""

from __future__ import annotations

from collections import Counter

from extensions.swarm.settings import replicas
from extensions.swarm.stack import SwarmStack
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks import state


def main() -> int:
    wanted = replicas.value_in(Settings.load())
    known = state.load()
    if known is None or known.flavour != "swarm":
        raise UserError("no swarm is up", "start it: make swarm-up REPLICAS=2")
    if wanted is None:
        raise UserError("no REPLICAS given", "say how many servers: make scale REPLICAS=4")
    stack = SwarmStack(known.settings_at_start)
    with lock.one_at_a_time():
        stack.scale(known, wanted)
    on = Counter(task.node for task in stack.tasks())
    spread = ", ".join(f"{count} on {node}" for node, count in sorted(on.items()))
    console.note(f"servers: {spread}")
    return 0
