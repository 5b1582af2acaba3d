"""The pipeline to measure, and what its server and versions say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bundle_serving.pictures import Transform
from scripts.measuring import machine, workload
from scripts.measuring.workload import Target
from scripts.recipes.pipelines import Pipeline
from scripts.server.served import find_served_version
from scripts.stacks import flavour
from scripts.stacks.state import State


@dataclass(frozen=True)
class Subject:
    title: str
    pipelines: tuple[Target, ...]  # that get the same inputs; the requested one first
    network: Target | None  # gets pixels; only if its pipeline is measured alone
    transform: Transform | None  # from pictures to that network's pixels
    served: Mapping[str, Any]
    models: tuple[str, ...]  # whose configs affect the speed


def find_subject(server: State, pipeline: Pipeline) -> Subject:
    """A pipeline, together with its bare network if that takes pixels."""
    version = find_served_version(pipeline)
    served = machine.describe_served(server, pipeline)
    ensemble = make_target(server, pipeline)
    network = pipeline.recipe.network_model(version.engine)
    kind, *_ = version.workspace.manifest.onnx.get("input", [""]) if network else [""]
    takes_pixels = kind == "uint8"
    return Subject(
        f"{pipeline.ensemble}, serving {served['network']}",
        (ensemble,),
        _target(server, str(network), workload.NETWORK) if takes_pixels else None,
        Transform(**version.workspace.manifest.transform) if takes_pixels else None,
        served,
        ensemble.steps,
    )


def make_target(server: State, pipeline: Pipeline, label: str = workload.ENSEMBLE) -> Target:
    return _target(server, pipeline.ensemble, label)


def _target(server: State, model: str, label: str) -> Target:
    many = flavour.many_of(server)
    servers = many.find_addresses(server) if many else {}
    # Of many servers, any one would tell its own.
    metrics = None if many else server.where(server.settings_at_start.metrics_port)
    return Target.for_model(label, model, server.http, server.grpc, servers, metrics)
