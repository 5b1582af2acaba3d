"""Asking about and controlling the models of the running server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.base.errors import UserError
from scripts.server.served import find_served_version
from scripts.server.triton import triton_api
from scripts.settings import arguments
from scripts.stacks.state import State

# A model that hangs while loading keeps the call open forever.
LONGEST_S = 60


@dataclass(frozen=True)
class Model:
    """One version in Triton's index; of a model that was never loaded, only the name is known."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


def index(server: State) -> list[Model]:
    return [Model(**each) for each in triton_api.post(server.http, "/repository/index")]


def in_memory(server: State, name: str) -> list[Model]:
    """The versions that are ready, loading or unloading."""
    versions = [each for each in index(server) if each.name == name]
    return [each for each in versions if each.state not in ("", "UNAVAILABLE")]


def pipeline() -> set[str]:
    """The main ensemble and the models that it needs, loaded or not."""
    version = find_served_version()
    return {version.pipeline.ensemble, *version.members}


def list_loaded_steps(server: State) -> dict[str, set[str]]:
    """The ensembles in memory, and the models that each uses."""
    loaded = {each.name for each in index(server) if each.state == "READY"}
    configs = {name: triton_api.get(server.http, f"/models/{name}/config") for name in loaded}
    return {
        name: {step["model_name"] for step in config["ensemble_scheduling"]["step"]}
        for name, config in configs.items()
        if "ensemble_scheduling" in config
    }


def only_of(ensemble: str, steps: Mapping[str, set[str]]) -> list[str]:
    """The models that only this ensemble uses, of those in memory."""
    others = {model for name, taken in steps.items() if name != ensemble for model in taken}
    return sorted(steps.get(ensemble, set()) - others)


def find_triton_model(server: State) -> str:
    """The model that TRITON_MODEL= names."""
    name = arguments.load().triton_model
    known = sorted({each.name for each in index(server)})
    if name not in known:
        problem = f"there is no model {name} in the repository" if name else "no TRITON_MODEL given"
        raise UserError(problem, f"choose one: TRITON_MODEL={', '.join(known)}")
    return name
