"""The flavour swarm. Imports nothing large, for the settings ask it for its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extensions.swarm.stack import SwarmStack
    from scripts.settings.settings import Settings

NAME = "swarm"
START = "make swarm-up"
# On any node, by others too.
IS_REACHED_HERE = False
ABOUT = "swarm: as cpu, on the nodes of a Docker Swarm (`make swarm-up`)."


def make_stack(settings: Settings) -> SwarmStack:
    from extensions.swarm.stack import SwarmStack

    return SwarmStack(settings)
