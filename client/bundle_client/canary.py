"""Canary rollouts: the server may have a candidate beside the model that should get a share of the
requests (`make rollout CANARY=10`). If the candidate does not answer, the model does.
"""

import random
import time
from typing import Any

# How long an answer about the candidate is valid.
HOLDS_S = 5.0


class Canary:
    """Which models to ask, in order. Can be shared between threads."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.candidate = f"{model}_candidate"
        self._share = 0.0
        self._until = 0.0

    @property
    def unknown(self) -> bool:
        """Whether to ask the server about the candidate (again)."""
        return time.monotonic() > self._until

    def told(self, config: dict[str, Any] | None) -> None:
        """Takes the candidate's config; None if there is no candidate."""
        self._until = time.monotonic() + HOLDS_S
        self._share = share(config) if config else 0.0

    def models(self) -> tuple[str, ...]:
        if self._share and random.random() < self._share:
            return self.candidate, self._model
        return (self._model,)


def share(config: dict[str, Any]) -> float:
    """The share of all requests, from the percentage in the config; 0 if there is none."""
    try:
        config = config.get("config", config)  # one level deeper over gRPC
        return float(config["parameters"]["share"]["string_value"]) / 100
    except (KeyError, TypeError, ValueError):
        return 0.0
