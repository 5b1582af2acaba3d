"""torchvision's detectors: architecture, weights, and what they find by themselves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from bundle_serving.infer import Answer
from bundle_serving.pictures import Transform
from bundle_serving.protocol import golden
from scripts.artefacts.manifest import OfTorchvision
from scripts.artefacts.onnx_file import BATCH, save
from scripts.steps.networks import (
    Network,
    load_fine_tuned,
    make_module,
    read_state,
    set_to_pictures,
)
from scripts.steps.vision import torchvision

BACKGROUND = "__background__"
# A tensor of the state whose first dimension is a score for each class and anchor of a place.
SCORES = "head.classification_head.module_list.0.1.bias"
# One whose first dimension is this, if the backbone's last layers are not halved.
TAIL, WHOLE_TAIL = "backbone.features.1.0.3.0.weight", 160

# Untrained, a network says the same of everything. So that something is found at all, its layers
# are set to pictures, its scores are this much louder, and the background's is higher by so much.
LOUDER, ABOVE = 10, 7


class Rows(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """Normalised pixels -> a row for each anchor: how its box is shifted, and its scores."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found = self.head(list(self.backbone(pixels).values()))
        return torch.cat([found["bbox_regression"], found["cls_logits"]], dim=2)


@dataclass(frozen=True)
class Whole:
    """torchvision's own, from a picture to its boxes."""

    module: nn.Module
    network: Network

    def save_anchors(self, path: Path) -> None:
        side = self.network.transform["crop"]
        pixels = torch.zeros(1, 3, side, side)
        of_size = torchvision.models.detection.image_list.ImageList
        with torch.inference_mode():
            features = list(self.module.backbone(pixels).values())
            (anchors,) = self.module.anchor_generator(of_size(pixels, [(side, side)]), features)
        np.save(path, anchors.numpy())

    def find(self, picture: Image.Image) -> Answer:
        """Tensors as a server answers with."""
        pixels = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1) / 255
        with torch.inference_mode():
            (found,) = self.module([pixels])
        names = [self.network.labels[number].encode() for number in found["labels"]]
        return {
            "BOXES": found["boxes"].numpy()[None],
            "LABELS": np.array([names], np.bytes_),
            "SCORES": found["scores"].numpy()[None],
        }

    def save_found(self, pictures: Sequence[Path], path: Path) -> None:
        golden.save(path, [self.find(Image.open(each)) for each in pictures])


def build(spec: OfTorchvision, boxes: Mapping[str, float]) -> Whole:
    entry = torchvision.models.get_model_weights(spec.arch).DEFAULT
    with _with_its_tail(spec):
        module, classes, origin = load_fine_tuned(
            spec, entry, partial(_count_classes, spec.arch), _settle
        )
    labels = list(entry.meta["categories"])
    if spec.is_file:
        names = spec.names(classes - 1, labels[1:], 1, " besides the background")
        labels = [BACKGROUND, *names]
    module.score_thresh, module.nms_thresh = boxes["threshold"], boxes["overlap"]
    module.topk_candidates, module.detections_per_img = boxes["candidates"], boxes["most"]
    network = Network(
        module=Rows(module).eval(),
        transform=_transform(module),
        mean=list(module.transform.image_mean),
        std=list(module.transform.image_std),
        labels=labels,
        weights=origin,
    )
    return Whole(module.eval(), network)


@contextmanager
def _with_its_tail(spec: OfTorchvision) -> Iterator[None]:
    """torchvision halves the last layers of a backbone that is given no weights, and no argument
    says otherwise: a backbone that was trained, and fine-tuned since, has them whole."""
    whole = spec.is_file and len(read_state(Path(spec.weights)).get(TAIL, ())) == WHOLE_TAIL
    ssdlite = torchvision.models.detection.ssdlite
    make = ssdlite.mobilenet_v3_large
    ssdlite.mobilenet_v3_large = lambda **said: make(**said | {"reduced_tail": not whole})
    try:
        yield
    finally:
        ssdlite.mobilenet_v3_large = make


def to_onnx(model: nn.Module, side: int, path: Path) -> None:
    save(model, {"input": torch.zeros(2, 3, side, side)}, ({0: BATCH},), "output", path)


def _transform(module: nn.Module) -> dict[str, Any]:
    side, _ = module.transform.fixed_size
    squashed = {"interpolation": "bilinear", "fit": "squash", "antialias": False}
    return {"resize": side, "crop": side, **squashed}


def _count_classes(arch: str, state: Mapping[str, torch.Tensor]) -> int:
    anchors: int = make_module(arch, 1).state_dict()[SCORES].shape[0]
    scores = len(state[SCORES]) if SCORES in state else 0
    return max(1, scores // anchors)


def _settle(module: nn.Module) -> None:
    rows, normalize = Rows(module), module.transform.normalize
    how = Transform(**_transform(module), decode="full")
    set_to_pictures(module, lambda pixels: rows(normalize(pixels)), how)
    with torch.no_grad():
        for block in module.head.classification_head.module_list:
            block[-1].weight *= LOUDER
            by_class = block[-1].bias.view(-1, module.head.classification_head.num_columns)
            by_class[:, 0] += ABOVE
