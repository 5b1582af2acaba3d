"""Starts servers on the nodes of a Docker Swarm, with a balancer on each node; run it on a manager.

    make swarm-up REPLICAS=3
    make swarm-up REPLICAS=3 REPOSITORY=s3://bucket/models/live

Exports, checks and lays out what has changed, as make up does. Servers that run already are
replaced one after the other.
"""

from bundle_serving.process.exposure import is_loopback
from extensions.swarm.stack import SwarmStack
from scripts.base import lock
from scripts.server import own_main
from scripts.settings.settings import Settings


def main() -> None:
    settings = Settings.load().replace_with(FLAVOUR="swarm")
    if is_loopback(settings.bind):  # others reach a node's ports, whatever BIND says of this one
        settings = settings.replace_with(BIND="0.0.0.0")
    server = own_main.bring_up(settings, "swarm-up")
    with lock.one_at_a_time():
        stack = SwarmStack(settings)
        wanted = settings.replicas
        if wanted and wanted != stack.replicas:
            stack.scale(server, wanted)
