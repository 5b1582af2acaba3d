"""A new version on trial: beside the model its server may have a candidate, and want a share of the
requests to go there (`make rollout CANARY=10`). What the candidate does not answer, the model does.
"""

import random
import time
from typing import Any

# So long an answer about the candidate holds.
HOLDS_S = 5.0


class Canary:
    """Which models to ask, in their order. May be shared by threads."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.candidate = f"{model}_candidate"
        self._share = 0.0
        self._until = 0.0

    @property
    def unknown(self) -> bool:
        """Whether the server should be asked about the candidate (again)."""
        return time.monotonic() > self._until

    def told(self, config: dict[str, Any] | None) -> None:
        """The candidate's config; None where there is no candidate."""
        self._until = time.monotonic() + HOLDS_S
        self._share = share(config) if config else 0.0

    def models(self) -> tuple[str, ...]:
        if self._share and random.random() < self._share:
            return self.candidate, self._model
        return (self._model,)


def share(config: dict[str, Any]) -> float:
    """The part of all requests, as the config says it in percent; 0 where it says nothing."""
    try:
        config = config.get("config", config)  # gRPC puts it one deeper
        return float(config["parameters"]["share"]["string_value"]) / 100
    except (KeyError, TypeError, ValueError):
        return 0.0
