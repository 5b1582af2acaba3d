"""Loading and unloading in the running server, with configs that last until the next load."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf import json_format

from bundle_serving.address import Address
from bundle_serving.process.cores import UNSEEN
from bundle_serving.protocol.messages import ModelConfig
from scripts.base import interrupts
from scripts.base.errors import UserError
from scripts.server.triton import loading


@dataclass(frozen=True)
class Control:
    address: Address | str  # gRPC
    limit: float  # seconds per call

    def load(
        self,
        model: str,
        config: ModelConfig,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        text = json_format.MessageToJson(config, preserving_proto_field_name=True)
        # The server would continue, and removing files meanwhile would hang it.
        with interrupts.defer_interrupts("the server has finished this load"):
            loading.load(self.address, model, self.limit, text, files)

    def unload(self, model: str) -> None:
        loading.unload(self.address, model, self.limit)

    def wait_for(self, models: Iterable[str]) -> None:
        """Waits for loads whose command is gone."""
        deadline = time.monotonic() + self.limit
        while at_work := self._names_in("LOADING") & set(models):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{', '.join(sorted(at_work))} did not load within {self.limit:g} s",
                    "restart it: make down && make up",
                )
            time.sleep(0.1)

    def in_use(self, ensemble: ModelConfig, models: Iterable[str]) -> list[str]:
        """Of a version's models, those that the ensemble needs or something else has loaded: the
        rest is only laid out, and takes no memory."""
        wanted = {step.model_name for step in ensemble.ensemble_scheduling.step} | self._names_in(
            "READY"
        )
        return [model for model in models if model in wanted]

    def _names_in(self, state: str) -> set[str]:
        return loading.in_state(state, self.address, self.limit)


def pin_steps(ensemble: ModelConfig, models: Mapping[str, int]) -> ModelConfig:
    """The ensemble with each of these steps pinned to one version."""
    config = ModelConfig()
    config.CopyFrom(ensemble)
    for step in config.ensemble_scheduling.step:
        step.model_version = models.get(step.model_name, step.model_version)
    return config


def serving_both(member: ModelConfig, *versions: int, unseen: int | None = None) -> ModelConfig:
    config = ModelConfig()
    config.CopyFrom(member)
    config.version_policy.specific.versions[:] = versions
    if unseen:
        config.parameters[UNSEEN].string_value = str(unseen)
    return config
