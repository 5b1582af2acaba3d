"""What runs beside the server, and stops with it."""

from extensions.similar import service
from scripts.stacks import state
from scripts.stacks.state import State


def stop(_: State | None) -> str:
    state.forget_damaged(service.STATE)
    return "embeddings service stopped" if service.stop() else ""
