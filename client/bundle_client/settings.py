"""Defaults of both clients."""

from typing import Any

# The main pipeline of a server that says no other by its name in KServe's metadata.
MODEL = "ensemble_python_resnet50"
UNNAMED = "triton"
TIMEOUT_S = 30.0
MAX_BYTES = 64_000_000
# How many pictures per concurrent request may be finished before the first one is yielded:
# one slow picture does not hold up the others, and memory stays bounded.
AHEAD = 8


def main_model(metadata: Any) -> str:
    """Of a server, as KServe's ServerMetadata."""
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return str(name) if name not in ("", UNNAMED) else MODEL


def check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1")
