"""Loading and unloading in the server that runs, by configs that hold until the next load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from scripts.host import loading


@dataclass(frozen=True)
class Control:
    address: str  # for gRPC
    limit: float  # seconds that one call may take

    def load(
        self,
        model: str,
        config: ModelConfig,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        text = json_format.MessageToJson(config, preserving_proto_field_name=True)
        loading.load(self.address, model, self.limit, text, files)

    def unload(self, model: str) -> None:
        loading.unload(self.address, model, self.limit)


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
