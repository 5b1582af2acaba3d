"""A detector of transformers: its network as it is served, and what it finds by itself."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import nn
from transformers import AutoImageProcessor, AutoModelForObjectDetection
from transformers.utils import logging as transformers_logging

from bundle_serving.agreement import Bound, compare
from bundle_serving.infer import Answer
from kinds.detection.serving.detection import (
    BOX,
    INDEPENDENT,
    LIKELIEST,
    UNITS,
    Detection,
    Floats,
    Rules,
)
from scripts.artefacts.onnx_file import BATCH, save, trace_to_file
from scripts.base.errors import UserError, reword_faults
from scripts.intake import metadata
from scripts.intake.original import Session, rows
from scripts.intake.plain import make_rgb
from scripts.steps.intake import CLOSE, require_whole
from scripts.steps.networks import Network, make_asker

BACKGROUND = "__background__"
# Of a picture's side: boxes smaller than that have this size, so that the logarithm stays finite.
SMALLEST = 1e-4
ALL = 2**31  # boxes: more than there are
SAME = Bound(0.001)
ANOTHER = "name the folder of another detector, such as DETR or YOLOS"


class Rows(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """Normalised pixels -> a row for each query: how its box is shifted from the whole picture, and
    its scores, the background's first."""

    def __init__(self, detector: nn.Module, independent: bool) -> None:
        super().__init__()
        self.detector, self.independent = detector, independent
        self.register_buffer("units", torch.from_numpy(UNITS))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found = self.detector(pixel_values=pixels)
        boxes, scores = found.pred_boxes, found.logits
        shifts = torch.cat([boxes[..., :2] - 0.5, boxes[..., 2:].clamp(min=SMALLEST).log()], 2)
        last = scores[..., -1:]
        if self.independent:  # there is none
            ordered = torch.cat([torch.zeros_like(last), scores], 2)
        else:
            ordered = torch.cat([last, scores[..., :-1]], 2)
        return torch.cat([shifts * self.units, ordered], 2)


@dataclass(frozen=True)
class Whole:
    """transformers' own, from a picture to its boxes."""

    module: nn.Module
    processor: Any
    network: Network
    queries: int
    most: int  # boxes of one picture
    independent: bool  # labels

    def anchors(self, side: int) -> Floats:
        """Each the whole picture."""
        return np.tile(np.array([0, 0, side, side], np.float32), (self.queries, 1))

    def find(self, file: bytes, threshold: float) -> Answer:
        """Tensors as a server answers with: best first, and boxes that end with the picture."""
        picture = _open_picture(file)
        with torch.inference_mode():
            output = self.module(pixel_values=self._prepare(picture))
        (found,) = self.processor.post_process_object_detection(
            output, threshold=threshold, target_sizes=[(picture.height, picture.width)]
        )
        order = found["scores"].argsort(descending=True, stable=True)
        names = [self.network.labels[1 + number].encode() for number in found["labels"][order]]
        ends = np.array([picture.width, picture.height] * 2, np.float32)
        return {
            "BOXES": found["boxes"][order].numpy().clip(0, ends)[None],
            "LABELS": np.array([names], np.bytes_).reshape(1, -1),
            "SCORES": found["scores"][order].numpy()[None],
        }

    def read(self, side: int, row: Floats, file: bytes) -> Answer:
        """What is served of what the network gives, if all boxes count."""
        picture = _open_picture(file)
        rules = Rules(0, 1, ALL, self.most, INDEPENDENT if self.independent else LIKELIEST)
        detection = Detection(side, self.anchors(side), self.network.labels, rules)
        return detection.answer(row[None], np.array([[picture.height, picture.width]]))

    def require_prepared(self, file: bytes, pixels: NDArray[np.uint8]) -> None:
        mean, std = (
            np.array(values).reshape(-1, 1, 1) * 255
            for values in (self.network.mean, self.network.std)
        )
        given = self._prepare(_open_picture(file))[0].numpy() * std + mean
        if given.shape != pixels.shape or np.abs(given - pixels).mean() > CLOSE:
            raise UserError(
                f"{type(self.processor).__name__} prepares pictures in a way that is not known "
                "here",
                ANOTHER,
            )

    def _prepare(self, picture: Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=picture, return_tensors="pt")["pixel_values"]
        return pixels


def build(folder: Path, side: int) -> Whole:
    """`side`: of the square that a picture is squashed into."""
    name = folder.name
    module, processor = _load_folder(folder, side)
    how = metadata.of_hugging_face(processor.to_dict())
    if not how:
        raise UserError(f"{name}/preprocessor_config.json is of an unknown kind", ANOTHER)
    known = sorted(module.config.id2label.items())
    # Each will be a line.
    names = [" ".join(str(label).split()) or f"class {number}" for number, label in known]
    output = _ask_black(module, side)
    queries, scores = output.logits.shape[1:]
    (all_boxes,) = processor.post_process_object_detection(output, threshold=-1)
    if scores not in (len(names), len(names) + 1):
        raise UserError(f"{name} has {len(names)} labels, and gives {scores} scores", ANOTHER)
    independent = scores == len(names)
    scale = how["scale"] / 255
    network = Network(
        module=Rows(module, independent).eval(),
        transform={key: how[key] for key in ("resize", "crop", "interpolation", "fit")},
        mean=[each * scale for each in how["mean"]],
        std=[each * scale for each in how["std"]],
        labels=[BACKGROUND, *names],
        weights={"source": name},
    )
    most = len(all_boxes["scores"])
    return Whole(module, processor, network, queries, most, independent)


def _load_folder(folder: Path, side: int) -> tuple[nn.Module, Any]:
    transformers_logging.disable_progress_bar()
    square = {"height": side, "width": side}
    without_code = {"trust_remote_code": False}  # None: it asks at the terminal
    with reword_faults(f"transformers cannot read {folder.name} as a detector", ANOTHER):
        module, found = AutoModelForObjectDetection.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **without_code
        )
        processor = AutoImageProcessor.from_pretrained(
            folder, size=square, backend="pil", **without_code
        )
    require_whole(folder.name, module, found)
    if not hasattr(processor, "post_process_object_detection"):
        raise UserError(f"{type(processor).__name__} reads no boxes", ANOTHER)
    return module.eval(), processor


def _ask_black(module: nn.Module, side: int) -> Any:
    """What it says of a black picture."""
    cause = f"{type(module).__name__} gives no boxes of a square of {side} pixels"
    with reword_faults(cause, f"try another SIZE=, or {ANOTHER}"), torch.inference_mode():
        output = module(pixel_values=torch.zeros(1, 3, side, side))
        (_, queries, _), (_, boxes, corners) = output.logits.shape, output.pred_boxes.shape
    if (boxes, corners) != (queries, BOX):
        raise UserError(
            f"{type(module).__name__} gives {boxes} boxes of {corners} numbers", ANOTHER
        )
    return output


def to_onnx(model: nn.Module, side: int, answers: str, path: Path) -> None:
    """By PyTorch's exporter, or else by its predecessor, which traces."""
    example = torch.zeros(2, 3, side, side, dtype=torch.uint8)
    try:
        save(model, {"input": example}, ({0: BATCH},), "output", path)
        _require_the_same(model, side, answers, path)
        return
    except Exception:
        path.unlink(missing_ok=True)
    with reword_faults("PyTorch cannot export it to ONNX", ANOTHER):
        trace_to_file(model, "input", example, path)
    _require_the_same(model, side, answers, path)


def _require_the_same(model: nn.Module, side: int, answers: str, path: Path) -> None:
    """An exporter may write down what holds for its example alone, such as two pictures."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (3, 3, side, side), dtype=np.uint8)
    found = rows(Session(path, "the exported network"), pixels, together=False)
    agreement = compare(make_asker(model)(pixels), found, answers)
    if not agreement.within(SAME):
        raise UserError(
            f"the exported network answers otherwise than PyTorch ({agreement})", ANOTHER
        )


def _open_picture(file: bytes) -> Image.Image:
    return make_rgb(ImageOps.exif_transpose(Image.open(io.BytesIO(file))))
