"""Canary rollouts: the server may have a candidate beside the model that should get a share of the
requests (`make rollout CANARY=10`). If the candidate does not answer, the model does.
"""

import random
import time
from typing import Any

# How long an answer about the candidate is valid, and how long a picture waits for one: a server
# that reads S3 may say nothing of its models for half a minute, and answers pictures meanwhile.
HOLDS_S, ASK_S = 5.0, 1.0


class Canary:
    """Which models to ask, in order. Can be shared between threads."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.candidate = f"{model}_candidate"
        self._share = 0.0
        self._until = 0.0

    def is_due(self) -> bool:
        """Whether the caller is to ask the server about the candidate (again); until there is an
        answer, what is known holds."""
        due = time.monotonic() > self._until
        if due:
            self._until = time.monotonic() + HOLDS_S
        return due

    def update(self, config: dict[str, Any] | None) -> None:
        """Takes the candidate's config; None if there is no candidate."""
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
