"""Every pipeline, asked by its command; and what plain PyTorch says of the same."""

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU, GPU
from tests.project import ROOT, Project

# Of models that a flavour does not load; and pipelines whose untrained networks are refused in half
# precision.
ON_CPU, ON_GPU, DALI = f"_{CPU.ending}", f"_{GPU.ending}", "_dali"
NOT_HALVED = ("detection", "segmentation")


class Served(Protocol):
    """kinds/*/tests/served.py: how a kind's pipeline is brought to a server and asked."""

    NAME: str

    def settings(self, request: pytest.FixtureRequest) -> dict[str, str]: ...
    def question(self, photo: Path) -> tuple[str, dict[str, str]]:
        """The command, and its settings."""


@cache
def find_served() -> dict[str, Served]:
    """By the pipeline's name."""
    paths = sorted((ROOT / "kinds").glob("*/tests/served.py"))
    found = [import_module(f"kinds.{path.parts[-3]}.tests.served") for path in paths]
    return {module.NAME: cast(Served, module) for module in found}


def ask_by_command(project: Project, name: str, photo: Path) -> Any:
    """By its own: the answer, as JSON."""
    main = "classify", {"IMG": str(photo)}
    command, asked = find_served()[name].question(photo) if name else main
    return json.loads(project.made(command, JSON="1", **asked).splitlines()[-1])


def not_ready(project: Project) -> set[str]:
    shown = project.made("models", COLUMNS="200")
    wanted = {PIPELINE, *pipelines.main().recipe.members}
    on_gpu = project.settings["FLAVOUR"] == "gpu"
    names = [name for name in find_served() if not (on_gpu and name in NOT_HALVED)]
    for each in map(pipelines.find_pipeline, names):
        wanted |= {each.ensemble, *each.recipe.members}
    ready = re.findall(r"^ ?(\w+) +\d+ +READY", shown, re.MULTILINE)
    others = (ON_CPU if on_gpu else ON_GPU, DALI)
    return {name for name in wanted if not name.endswith(others)} - {*ready}


def pytorch(module: Any, transform: Any, photos: list[Path]) -> list[NDArray[np.float32]]:
    import torch

    with torch.inference_mode():
        return [
            module(transform(Image.open(photo).convert("RGB"))[None]).softmax(1)[0].numpy()
            for photo in photos
        ]


def pictures_by_pytorch(weights: Path, photos: list[Path]) -> list[NDArray[np.float32]]:
    """By mobilenet_v2, with torchvision's own transforms."""
    from scripts.artefacts.manifest import Torchvision
    from scripts.steps.networks import build
    from scripts.steps.vision import torchvision

    published = torchvision.models.get_model_weights("mobilenet_v2").IMAGENET1K_V1
    network = build(Torchvision("mobilenet_v2", str(weights))).module
    return pytorch(network, published.transforms(), photos)


# Width and height.
SIZES = (
    *((640, 480), (480, 640), (320, 320), (1024, 768), (200, 900)),
    *((97, 61), (1280, 720), (500, 375), (64, 64), (333, 1000)),
)


def of_mixed_sizes(folder: Path) -> list[Path]:
    """The drawn mug, each time seen otherwise."""
    from scripts.artefacts.samples import of_sizes

    photos = []
    for number, file in enumerate(of_sizes(SIZES)):
        photos.append(folder / f"{number}.png")
        photos[-1].write_bytes(file)
    return photos
