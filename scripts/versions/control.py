"""Loading and unloading in the server that runs, by configs that hold until the next load."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from scripts.host import triton_api


@dataclass(frozen=True)
class Control:
    address: str
    limit: float  # seconds that one call may take

    def load(
        self,
        model: str,
        config: ModelConfig | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """As the repository has it; or with this config, and for a model that is not there, with
        these files. Neither outlives the server."""
        parameters: dict[str, Any] = {}
        if config:
            parameters["config"] = json_format.MessageToJson(
                config, preserving_proto_field_name=True
            )
        for name, content in (files or {}).items():
            parameters[f"file:{name}"] = base64.b64encode(content).decode()
        self._post(f"/repository/models/{model}/load", {"parameters": parameters})

    def unload(self, model: str) -> None:
        self._post(f"/repository/models/{model}/unload", {})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        triton_api.post(self.address, path, body, self.limit)


def pinned(ensemble: ModelConfig, models: Mapping[str, int]) -> ModelConfig:
    """The ensemble with each step taken of one version, whatever else is loaded."""
    config = ModelConfig()
    config.CopyFrom(ensemble)
    for step in config.ensemble_scheduling.step:
        step.model_version = models[step.model_name]
    return config


def serving_both(member: ModelConfig, *versions: int) -> ModelConfig:
    config = ModelConfig()
    config.CopyFrom(member)
    config.version_policy.specific.versions[:] = versions
    return config
