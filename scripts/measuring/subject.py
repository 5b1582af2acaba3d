"""Which pipeline of pictures is measured, and what its server and its folders tell of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.pictures import Transform
from bundle_serving.start_server import PIPELINE
from scripts.base.errors import UserError
from scripts.measuring import machine, workload
from scripts.measuring.workload import Target
from scripts.repository import live
from scripts.server import model_control, triton_api
from scripts.stacks.state import State
from scripts.steps.manifest import Manifest

CASCADE = "cascade"


@dataclass(frozen=True)
class Subject:
    title: str
    pipelines: tuple[Target, ...]  # that are sent pictures, the one that was named first
    network: Target | None  # that is fed their pixels, where its pipeline is measured alone
    transform: Transform
    served: Mapping[str, Any]
    models: tuple[str, ...]  # whose configurations decide how fast it is


def named(server: State, model: str) -> Subject:
    """An ensemble of the server, beside its network."""
    configs = _configs(server)
    if not takes_pictures(configs.get(model, {})):
        known = [name for name, config in configs.items() if takes_pictures(config)]
        raise UserError(
            f"MODEL={model} is no pipeline of pictures that is loaded",
            f"choose: {', '.join(f'MODEL={name}' for name in sorted({CASCADE, *known}))}",
        )
    ensemble, network = targets(server, model)
    served = machine.served(server) if model == PIPELINE else laid_out(server, network.model)
    return Subject(
        f"{model}, serving {served['network']}",
        (ensemble,),
        network,
        transform(server, ensemble.steps[0]),
        served,
        ensemble.steps,
    )


def targets(server: State, model: str = PIPELINE) -> tuple[Target, Target]:
    """An ensemble of the server that is up, and the network in it."""
    network = network_of(triton_api.get(server.http, f"/models/{model}/config"))
    return (
        Target.asked(workload.ENSEMBLE, model, server.http, server.grpc),
        Target.asked(workload.NETWORK, network, server.http, server.grpc),
    )


def takes_pictures(config: Mapping[str, Any]) -> bool:
    """Whether it is an ensemble whose one input is the bytes of a file."""
    inputs = [(each["data_type"], [*map(int, each["dims"])]) for each in config.get("input", ())]
    return "ensemble_scheduling" in config and inputs == [("TYPE_UINT8", [-1])]


def network_of(ensemble: Mapping[str, Any]) -> str:
    """The step that is fed what the first one makes of a picture."""
    first, *others = ensemble["ensemble_scheduling"]["step"]
    pixels = set(first["output_map"].values())
    for step in others:
        if pixels & set(step["input_map"].values()):
            return str(step["model_name"])
    raise UserError(
        f"no step of {ensemble['name']} takes what its first one gives",
        "measure a pipeline that has preprocessing and network apart",
    )


def transform(server: State, preprocessing: str) -> Transform:
    """What is done to pictures before a network."""
    record = folder(server, preprocessing) / "transform.json"
    try:
        return Transform.load(record)
    except (OSError, ValueError, TypeError):
        raise UserError(
            f"{preprocessing} has no {record.name} that tells how it crops",
            "measure a pipeline that was made here",
        ) from None


def laid_out(server: State, network: str) -> dict[str, Any]:
    """What is known of a network beside the first pipeline's, as machine.served tells of that."""
    here = folder(server, network)
    manifest = Manifest.load(here / "manifest.json")
    identity = manifest.identity if manifest else {}
    engine = here / "engine.json"
    proved = json.loads(engine.read_text()) if engine.exists() else identity
    return {
        "version": here.name,
        "network": identity.get("arch") or identity.get("source") or network,
        "weights": identity.get("weights", ""),
        "onnx": manifest.onnx["sha256"] if manifest else "",
        "precision": proved.get("precision", ""),
        "flavour": server.flavour,
    }


def folder(server: State, model: str) -> Path:
    """Of the version that the server has of it."""
    newest = max(map(int, triton_api.get(server.http, f"/models/{model}")["versions"]))
    return live.REPOSITORY / model / str(newest)


def _configs(server: State) -> dict[str, dict[str, Any]]:
    ready = {each.name for each in model_control.index(server) if each.state == "READY"}
    return {name: triton_api.get(server.http, f"/models/{name}/config") for name in ready}
