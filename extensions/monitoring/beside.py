"""What runs beside the server, and stops with it."""

from extensions.monitoring import containers
from scripts.stacks.state import State


def stop(known: State | None) -> str:
    stopped = containers.stop(known)
    return "Prometheus and Alertmanager stopped; what they measured is kept" if stopped else ""
