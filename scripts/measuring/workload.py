"""What to measure: which pipeline, and with which inputs, protocols and concurrencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bundle_serving.address import Address
from bundle_serving.pictures import Transform
from scripts.measuring import machine
from scripts.measuring.photos import Inputs
from scripts.recipes.pipelines import Pipeline
from scripts.server.served import find_served_version
from scripts.server.triton import triton_api
from scripts.stacks import flavour
from scripts.stacks.state import State

ENSEMBLE, NETWORK, TEXTBOOK = "ensemble", "bare network", "textbook pipeline"
CASCADE = "cascade"

ONE: Mapping[str, Address] = {}


@dataclass(frozen=True)
class Target:
    """A model on a server, and what the server says about it."""

    label: str
    model: str
    http: Address
    grpc: Address
    input: str
    # An ensemble's models in the order of its config; otherwise the model itself.
    steps: tuple[str, ...]
    # Where each counts what it answered; empty: at `http`, because it is one.
    servers: Mapping[str, Address] = field(default_factory=dict, compare=False)
    metrics: Address | None = None  # if it tells what its processes spend
    in_sequences: bool = False  # a step keeps requests of a sequence together
    parts: tuple[str, ...] = ()  # whose work its one step does

    @classmethod
    def for_model(
        cls,
        label: str,
        model: str,
        http: Address,
        grpc: Address,
        servers: Mapping[str, Address] = ONE,
        metrics: Address | None = None,
    ) -> Target:
        config = triton_api.get(http, f"/models/{model}/config")
        steps = config.get("ensemble_scheduling", {}).get("step", [])
        names = tuple(step["model_name"] for step in steps) or (model,)
        takes = config["input"][0]["name"]
        of_steps = [triton_api.get(http, f"/models/{name}/config") for name in names]
        in_sequences = any("sequence_batching" in each for each in of_steps)
        told = of_steps[0].get("parameters", {}).get("steps", {}).get("string_value", "")
        parts = tuple(told.split(",")) if len(names) == 1 and told else ()
        return cls(label, model, http, grpc, takes, names, servers, metrics, in_sequences, parts)


@dataclass(frozen=True)
class Subject:
    title: str
    pipelines: tuple[Target, ...]  # that get the same inputs; the requested one first
    served: Mapping[str, Any]
    models: tuple[str, ...]  # whose configs affect the speed
    network: Target | None = None  # gets pixels; only if its pipeline is measured alone
    transform: Transform | None = None  # from pictures to that network's pixels


def find_subject(server: State, pipeline: Pipeline) -> Subject:
    """A pipeline, together with its bare network if that takes pixels."""
    version = find_served_version(pipeline)
    served = machine.describe_served(server, pipeline)
    ensemble = make_target(server, pipeline.ensemble)
    network = pipeline.recipe.network_model(version.engine)
    kind, *_ = version.workspace.manifest.onnx.get("input", [""]) if network else [""]
    takes_pixels = kind == "uint8"
    return Subject(
        f"{pipeline.ensemble}, serving {served['network']}",
        (ensemble,),
        served,
        ensemble.steps,
        make_target(server, str(network), NETWORK) if takes_pixels else None,
        Transform(**version.workspace.manifest.transform) if takes_pixels else None,
    )


def make_target(server: State, model: str, label: str = ENSEMBLE) -> Target:
    many = flavour.many_of(server)
    servers = many.find_addresses(server) if many else {}
    # Of many servers, any one would tell its own.
    metrics = None if many else server.where(server.settings_at_start.metrics_port)
    return Target.for_model(label, model, server.http, server.grpc, servers, metrics)


@dataclass(frozen=True)
class Configuration:
    target: Target
    inputs: Inputs
    protocol: str  # grpc or http
    batch: int  # pictures in one request
    concurrency: int  # requests in flight

    @property
    def name(self) -> str:
        each = f", {self.batch} in each" if self.batch > 1 else ""
        return (
            f"{self.target.label}, {self.inputs.name}, {self.protocol}, "
            f"{self.concurrency} at a time{each}"
        )


def everything(
    ensemble: Target,
    network: Target,
    contenders: Sequence[Target],
    pictures: Sequence[Inputs],
    pixels: Inputs,
) -> list[Configuration]:
    found = []
    for sent in pictures:
        found += [Configuration(ensemble, sent, "grpc", 1, each) for each in (1, 2, 4, 8)]
        found += [Configuration(ensemble, sent, "http", 1, each) for each in (1, 4)]
        found += [Configuration(ensemble, sent, "grpc", 8, 1)]
        found += [Configuration(one, sent, "grpc", 1, c) for one in contenders for c in (1, 4)]
    return found + [Configuration(network, pixels, "grpc", 1, each) for each in (1, 4, 8)]


def a_few(
    ensemble: Target,
    network: Target,
    contenders: Sequence[Target],
    pictures: Sequence[Inputs],
    pixels: Inputs,
) -> list[Configuration]:
    """A selection for a run of a minute."""
    found = []
    for sent in pictures:
        found += [Configuration(ensemble, sent, "grpc", 1, each) for each in (1, 4)]
        found += [Configuration(one, sent, "grpc", 1, 4) for one in contenders]
    found += [Configuration(ensemble, pictures[-1], "http", 1, 4)]
    return found + [Configuration(network, pixels, "grpc", 1, each) for each in (1, 4)]


def side_by_side(
    pipelines: Sequence[Target], pictures: Sequence[Inputs], concurrencies: Sequence[int]
) -> list[Configuration]:
    """The same measurements for each."""
    return [
        Configuration(pipeline, sent, "grpc", 1, each)
        for sent in pictures
        for pipeline in pipelines
        for each in concurrencies
    ]
