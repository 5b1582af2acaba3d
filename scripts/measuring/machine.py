"""What was measured, and on which machine: without that, a figure means nothing."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from bundle_client import __version__
from scripts.artefacts.manifest import read_pins
from scripts.base import files
from scripts.recipes.pipelines import Pipeline
from scripts.server.served import find_served_version
from scripts.server.triton import triton_api
from scripts.settings.settings import SERVED, names
from scripts.stacks.state import State
from scripts.steps.engine import processor

# The CPU features that decide how fast a network runs.
ABILITIES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


def describe_machine(server: State, models: Sequence[str], analyzer: str) -> dict[str, Any]:
    """`analyzer`: its version."""
    return {
        "machine": machine(server),
        "versions": versions(server) | {"perf_analyzer": analyzer},
        "settings": {
            name: value
            for name, value in server.settings.items()
            if name in names(*SERVED) and name not in server.settings_at_start.ports
        },
        "models": {
            model: _instances(triton_api.get(server.http, f"/models/{model}/config"))
            for model in models
        },
    }


def machine(server: State) -> dict[str, Any]:
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = flags[1].split() if flags else []
    seen = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "abilities": " ".join(ability for ability in ABILITIES if ability in has),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "kernel": platform.release(),
    }
    if server.flavour == "gpu":
        seen["GPU"] = _name_gpu(server)
    return seen


def _name_gpu(server: State) -> str:
    """By the main pipeline's plan; what is served without one, as trees are, does not say it."""
    if built := files.read_json(find_served_version().workspace.plan / "manifest.json"):
        return str(built["gpu"]["name"])
    # The code that talks to Docker takes a third of a second to import.
    from scripts.stacks.gpu import GpuStack

    return GpuStack(server.settings_at_start).description


def versions(server: State) -> dict[str, str]:
    used = ("pillow",) if server.flavour == "gpu" else ("pillow", "openvino")
    return {
        "triton-bundle": __version__,
        "tritonserver": triton_api.get(server.http)["version"],
        "python": platform.python_version(),
        **read_pins(*used),
    }


def describe_served(server: State, pipeline: Pipeline) -> dict[str, Any]:
    version = find_served_version(pipeline)
    of_all = {"version": version.number, "flavour": server.flavour}
    if not version.workspace.onnx.is_dir():
        return of_all | {"network": "none", "weights": "", "onnx": "", "precision": ""}
    manifest = version.workspace.manifest
    identity = manifest.identity
    return of_all | {
        "network": identity.get("arch") or identity["source"],
        "weights": identity.get("weights", ""),
        "onnx": manifest.onnx["sha256"],
        "precision": version.precision,
    }


def _instances(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "instances": sum(group["count"] for group in config.get("instance_group", ())),
        "batching": "dynamic_batching" in config,
        **{name: value["string_value"] for name, value in config.get("parameters", {}).items()},
    }
