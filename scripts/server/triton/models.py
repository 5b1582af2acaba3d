"""The models of the running server, as it tells of them: which there are, what they use, and what
they have answered."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from bundle_serving.address import Address
from scripts.base.errors import UserError
from scripts.repository import live
from scripts.server.served import find_served_version
from scripts.server.triton import triton_api
from scripts.settings import arguments
from scripts.stacks.state import State

# A model that hangs while loading keeps the call open forever.
LONGEST_S = 60
# By model and version: how many a server answered, how many failed, and their mean in ms.
Totals: TypeAlias = dict[tuple[str, str], dict[str, Any]]


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


def list_needed() -> set[str]:
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


def read_all_totals(servers: Mapping[str, Address]) -> list[Totals]:
    told = []
    for each in servers.values():
        with suppress(UserError):  # one that ends just now
            told.append(read_totals(each))
    return told


def read_totals(address: Address) -> Totals:
    """What its door counted since it started, which leaves our own requests out. A plan tells it
    nothing: of what it did there is Triton's word alone, which counts those too."""
    # Of each step's version, and of each pipeline.
    told = {(each["model"], each["version"]): each for each in triton_api.get(address, "/answered")}
    found, none = {}, {"answered": 0, "failed": 0, "ms": 0}
    for model in triton_api.get(address, "/models/stats")["model_stats"]:
        name, version = model["name"], model["version"]
        by_triton = _read_counts(model["inference_stats"]) if name.endswith("_trt") else none
        found[name, version] = told.get((name, version)) or told.get((name, "")) or by_triton
    return found


def _read_counts(counted: dict[str, Any]) -> dict[str, Any]:
    answered = counted["success"]["count"]
    each = counted["success"]["ns"] / answered / 1e6 if answered else 0
    return {"answered": answered, "failed": counted["fail"]["count"], "ms": each}


def list_answered(main: str, told: Sequence[Totals]) -> Iterator[tuple[str, ...]]:
    """Of all servers."""
    for name, version in dict.fromkeys(chain.from_iterable(told)):
        totals = [each[name, version] for each in told if (name, version) in each]
        answered, failed = (sum(each[what] for each in totals) for what in ("answered", "failed"))
        spent = sum(each["ms"] * (each["answered"] + each["failed"]) for each in totals)
        shown = live.describe_network(name, version) + ", main" * (name == main)
        yield shown, version, str(answered), str(failed), f"{spent / max(answered + failed, 1):.1f}"
