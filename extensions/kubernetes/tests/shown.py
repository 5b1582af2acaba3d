"""What its pods look like in make status, and why its commands need no rendering:
tests/shown/every.py."""

from typing import Any
from unittest.mock import MagicMock

from extensions.kubernetes.stack import KubernetesStack
from scripts.stacks.many_servers import Task

WHY = "0/3 nodes are available: 3 Insufficient cpu, 3 node(s) had an untolerated taint"


def pods() -> None:
    tasks = [Task("", f"triton-bundle-6577b64f4f-{name}", node, state, "", why, "", not why)
             for name, node, state, why in (("764d2", "node1.birds.example.org", "running", ""),
                                            ("lsct2", "", "pending", WHY))]  # fmt: skip
    stack: Any = MagicMock(servers=lambda: tasks, replicas=3)
    KubernetesStack.show(stack)


SHOWN = {"status: of a cluster": pods}
NOTES_ALONE = {"kubernetes": "where it is written, and what is next"}
ELSEWHERE = {"cluster-up": "as up"}
