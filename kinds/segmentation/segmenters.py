"""torchvision's networks for segmentation: architecture, weights, and what they see."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from bundle_serving.pictures import Transform
from scripts.artefacts.manifest import OfTorchvision
from scripts.artefacts.onnx_file import BATCH, save
from scripts.base.errors import UserError
from scripts.steps.networks import Network, Pixels, load_fine_tuned, set_to_pictures
from scripts.steps.vision import torchvision

# A tensor of the state with a number for each class.
SCORES = "classifier.low_classifier.bias"
# As many as a byte tells apart.
MOST_CLASSES = 256

SIDES = {
    axis: torch.export.Dim(name, min=32, max=8192) for axis, name in ((2, "height"), (3, "width"))
}


class Scores(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """Normalised pixels -> of each pixel, a score per class."""

    def __init__(self, segmenter: nn.Module) -> None:
        super().__init__()
        self.segmenter = segmenter

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.segmenter(pixels)["out"]
        return scores


class Classes(nn.Module):  # type: ignore[misc]
    """uint8 pixels -> of each pixel, the number of its class."""

    def __init__(self, network: Network, precision: str = "fp32") -> None:
        super().__init__()
        self.scores = Pixels(network, precision)
        self.for_tensorrt = precision == "fp16"

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        numbers = self.scores(pixels).argmax(dim=1)
        # It makes uint8 outputs of floats alone.
        return (numbers.float() if self.for_tensorrt else numbers).to(torch.uint8)


@dataclass(frozen=True)
class Whole:
    """torchvision's own, from a picture to the class of each pixel."""

    network: Network
    prepare: Any  # torchvision's transforms, published with the weights

    def see(self, picture: Image.Image) -> NDArray[np.uint8]:
        with torch.inference_mode():
            scores = self.network.module(self.prepare(picture.convert("RGB"))[None])
        classes: NDArray[np.uint8] = scores.argmax(dim=1).numpy().astype(np.uint8)
        return classes


def build(spec: OfTorchvision) -> Whole:
    entry = torchvision.models.get_model_weights(spec.arch).DEFAULT
    prepare = entry.transforms()
    (side,) = prepare.resize_size
    transform = {
        **{"resize": side, "crop": side, "fit": "whole"},
        "interpolation": prepare.interpolation.value,
    }
    how = Transform(**transform, decode="full")
    module, classes, origin = load_fine_tuned(
        spec,
        entry,
        partial(_count_classes, spec.weights),
        lambda module: set_to_pictures(module, module, how),
    )
    labels = list(entry.meta["categories"])
    if spec.is_file:
        labels = spec.names(classes, labels)
    network = Network(
        module=Scores(module).eval(),
        transform=transform,
        mean=list(prepare.mean),
        std=list(prepare.std),
        labels=labels,
        weights=origin,
    )
    return Whole(network, prepare)


def to_onnx(model: nn.Module, path: Path) -> None:
    example = torch.zeros(2, 3, 96, 160, dtype=torch.uint8)
    save(model, {"input": example}, ({0: BATCH, **SIDES},), "output", path)


def _count_classes(weights: str, state: Mapping[str, Any]) -> int:
    classes = len(state.get(SCORES, [0]))
    if classes > MOST_CLASSES:
        raise UserError(
            f"{Path(weights).name} has {classes} classes, and a mask at most {MOST_CLASSES}",
            "train it with fewer",
        )
    return classes
