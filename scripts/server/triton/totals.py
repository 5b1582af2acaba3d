"""What servers have answered since each started, as their doors count it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

from bundle_serving.address import Address
from scripts.base.errors import UserError
from scripts.repository import live
from scripts.server.triton import triton_api

# By model and version: how many a server answered, how many failed, and their mean in ms.
Totals: TypeAlias = dict[tuple[str, str], dict[str, Any]]


def read_all(servers: Mapping[str, Address]) -> list[Totals]:
    told = []
    for each in servers.values():
        with suppress(UserError):  # one that ends just now
            told.append(read(each))
    return told


def read(address: Address) -> Totals:
    """What its door counted, which leaves our own requests out. A plan tells it nothing: of what it
    did there is Triton's word alone, which counts those too."""
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


def list_models(main: str, told: Sequence[Totals]) -> Iterator[tuple[str, ...]]:
    """Of all servers."""
    for name, version in dict.fromkeys(chain.from_iterable(told)):
        totals = [each[name, version] for each in told if (name, version) in each]
        answered, failed = (sum(each[what] for each in totals) for what in ("answered", "failed"))
        spent = sum(each["ms"] * (each["answered"] + each["failed"]) for each in totals)
        shown = live.describe_network(name, version) + ", main" * (name == main)
        yield shown, version, str(answered), str(failed), f"{spent / max(answered + failed, 1):.1f}"
