"""What its servers look like in make status, and why its commands need no rendering:
tests/shown/every.py."""

from typing import Any
from unittest.mock import MagicMock

from extensions.swarm.stack import SwarmStack
from scripts.stacks.many_servers import Task

FAULT = 'starting container failed: no space left on device ("/var/lib/docker/volumes/models")'


def nodes() -> None:
    tasks = [Task("", f"server.{n}", f"node{n}.birds.example.org", state, "", why, "", not why)
             for n, (state, why) in enumerate((("running", ""), ("failed", FAULT)), 1)]  # fmt: skip
    stack: Any = MagicMock(servers=lambda: tasks, tasks=lambda _: [])
    stack.problems = lambda: ["node2.birds.example.org does not answer the manager: 1 server less"]
    SwarmStack.show(stack)


SHOWN = {"status: of a swarm": nodes}
NOTES_ALONE = {"swarm-load": "each node that has the image"}
ELSEWHERE = {"swarm-up": "as up", "swarm-down": "as down"}
