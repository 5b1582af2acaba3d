"""Defaults of both clients."""

MODEL = "ensemble_python_resnet50"
TIMEOUT_S = 30.0
MAX_BYTES = 64_000_000
# How many pictures per concurrent request may be finished before the first one is yielded:
# one slow picture does not hold up the others, and memory stays bounded.
AHEAD = 8


def check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1")
