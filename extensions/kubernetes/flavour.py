"""The flavour kubernetes. Imports nothing large, for the settings ask it for its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extensions.kubernetes.stack import KubernetesStack
    from scripts.settings.settings import Settings

NAME = "kubernetes"
START = "make cluster-up"
# By this machine alone, on its own ports.
IS_REACHED_HERE = True
ABOUT = "kubernetes: as cpu, in pods of a cluster (`make cluster-up`)."


def make_stack(settings: Settings) -> KubernetesStack:
    from extensions.kubernetes import where
    from extensions.kubernetes.stack import KubernetesStack

    return KubernetesStack(where.settle(settings))
