"""Detectors as transformers keeps them, small ones. Their weights are random, with last layers that
find something."""

import json
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmark.foreign.adopted import Outcome
from benchmark.foreign.case import Boxes, Case, Truth, farthest, open_picture, pictures
from bundle_client import Box, Client
from bundle_serving.networks import network_in
from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import Transform, to_pixels_and_size
from kinds.detection.detr.export import Detr, export
from kinds.detection.export import ANCHORS
from kinds.detection.recipe import Detection
from kinds.detection.serving import detection
from kinds.detection.serving.detection import Rules
from scripts.artefacts.workspace import Workspace
from scripts.recipes.configs import LABELS as LABELS_FILE
from scripts.recipes.layout import CPU
from scripts.repository import sources
from scripts.server import ask
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks.state import State
from scripts.steps import engine
from scripts.steps.vision import torchvision

# After torchvision, or its import fails beside a PyTorch for CPUs alone.
import transformers  # isort: skip

assert torchvision

LABELS = {0: "bicycle", 1: "car", 2: "tram"}
SIDE, QUERIES = 96, 12
THRESHOLD = 0.5  # as add-model sets it

STAGES = ["stage2", "stage3", "stage4"]
BACKBONE = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 48], "depths": [1] * 4}
ATTENTION = {
    **{"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "num_queries": QUERIES},
    **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
}
RT = {
    **{"encoder_in_channels": [24, 32, 48], "decoder_in_channels": [32] * 3, "num_denoising": 0},
    **{"encoder_hidden_dim": 32, "feat_strides": [8, 16, 32]},
}
YOLOS = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 16},
    **{"intermediate_size": 64, "image_size": [SIDE, SIDE], "num_detection_tokens": QUERIES},
}
KINDS = ("Detr", "ConditionalDetr", "DeformableDetr", "Yolos", "RTDetr")


def small(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """A detector and its processor."""
    torch.manual_seed(seed)
    known = YOLOS if kind == "Yolos" else ATTENTION | _backbone(kind) | (RT if "RT" in kind else {})
    config = getattr(transformers, f"{kind}Config")(**known, id2label=LABELS)
    module = getattr(transformers, f"{kind}ForObjectDetection")(config).eval()
    processor = getattr(transformers, f"{kind}ImageProcessor")(
        size={"height": SIDE, "width": SIDE}
        if "RT" in kind
        else {"shortest_edge": SIDE, "longest_edge": 2 * SIDE}
    )
    return sharpen_scores(module, processor), processor


def _backbone(kind: str) -> dict[str, Any]:
    used = STAGES[-1:] if kind in ("Detr", "ConditionalDetr") else STAGES
    name = "RTDetrResNetConfig" if "RT" in kind else "ResNetConfig"
    backbone = getattr(transformers, name)(**BACKBONE, layer_type="basic", out_features=used)
    known = {"backbone_config": backbone}
    return known if "RT" in kind else known | {"use_timm_backbone": False, "backbone": None}


def sharpen_scores(module: Any, processor: Any) -> Any:
    """With scores and boxes that differ by picture and by query; of random weights they would
    hardly."""
    for name, parameter in module.named_parameters():
        if "query_position_embeddings" in name or "detection_tokens" in name:
            torch.nn.init.normal_(parameter)
    square = {"height": SIDE, "width": SIDE}
    seen = [
        processor(images=open_picture(file), size=square, return_tensors="pt")["pixel_values"]
        for file in pictures(6)
    ]
    heads = [
        (part, 3.0 if "class" in name else 1.0)
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Linear) and _is_last(name, part)
    ]
    for head, wanted in heads:
        given: list[Any] = []
        hook = head.register_forward_hook(lambda _, __, out, given=given: given.append(out))
        with torch.inference_mode():
            for pixels in seen:
                module(pixel_values=pixels)
        hook.remove()
        if not given:
            continue
        rows = torch.cat([each.reshape(-1, each.shape[-1]) for each in given])
        factor = wanted / rows.std(0).mean().clamp(min=1e-6)
        with torch.no_grad():
            head.weight *= factor
            head.bias.sub_(rows.mean(0)).mul_(factor)
    return module


def _is_last(name: str, part: Any) -> bool:
    last = part.out_features in (4, len(LABELS), len(LABELS) + 1)
    return last and any(word in name for word in ("class", "bbox", "score"))


def save_detector(kind: str, folder: Path, seed: int = 0) -> Truth:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, processor = small(kind, seed)
    module.save_pretrained(folder)
    processor.save_pretrained(folder)
    # What resizes as the server does: random weights make much of a level.
    exact = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    return partial(right, module, exact)


def right(module: Any, processor: Any, file: bytes) -> Boxes:
    """By transformers' own code from the picture, squashed, to the boxes, as far as they are in
    it."""
    picture, square = open_picture(file), {"height": SIDE, "width": SIDE}
    with torch.inference_mode():
        output = module(**processor(images=picture, size=square, return_tensors="pt"))
    sizes = [(picture.height, picture.width)]
    (found,) = processor.post_process_object_detection(output, THRESHOLD, sizes)
    names = [LABELS[int(number)] for number in found["labels"]]
    ends = np.array([picture.width, picture.height] * 2, np.float32)
    return {
        "BOXES": found["boxes"].numpy().clip(0, ends)[None],
        "LABELS": np.array([names], np.bytes_).reshape(1, -1),
        "SCORES": found["scores"].numpy()[None],
    }


def _of_others(kind: str, folder: Path) -> Truth:
    """Only what tells that it is another's."""
    config = {"model_type": kind.lower(), "architectures": [f"{kind}ForObjectDetection"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": SIDE}}))
    return _never


def _without_head(folder: Path) -> Truth:
    """As one is trained without boxes, under the name of a detector."""
    save_detector("Detr", folder)
    module, _ = small("Detr")
    module.model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["DetrForObjectDetection"]
    (folder / "config.json").write_text(json.dumps(config))
    return _never


def _never(file: bytes) -> Boxes:
    raise AssertionError("it is refused")


def cases() -> Iterator[Case]:
    origin, options = "Hugging Face, a detector's folder", {"FROM": "{folder}"}
    for kind in KINDS:
        yield Case(
            f"{kind}ForObjectDetection", origin, partial(save_detector, kind), options, finds=True
        )
    for kind in ("OwlViT", "Nothing"):
        name, make = f"{kind}ForObjectDetection", partial(_of_others, kind)
        yield Case(name, origin, make, options, "cannot read", True)
    yield Case("DETR without its heads", origin, _without_head, options, "lacks", True)


CASES = (*cases(),)


def find_outcome(words: dict[str, str], folder: Path, files: list[bytes], truth: Truth) -> Outcome:
    source = sources.find_source(words["FROM"])
    assert source.kind
    recipe = source.kind.make_recipe("foreign", source.path, words)
    wanted = recipe.export(Settings(DEFAULTS | recipe.defaults()), CPU).spec
    assert isinstance(wanted, Detr)
    made = Workspace(folder / "made")
    export(wanted, made.onnx)
    assert engine.decide(engine.Check(made.onnx, "fp32"))["precision"] == "fp32"
    pairs = zip(map(truth, files), find_boxes(recipe.as_found(made), made, files), strict=True)
    return Outcome("", max(farthest(*pair, wanted.threshold) for pair in pairs), "boxes")


def find_boxes(recipe: Detection, made: Workspace, files: list[bytes]) -> Iterator[Boxes]:
    """As the served models do it."""
    network, transform = Engine(network_in(made.onnx), "fp32", 1), made.manifest.transform
    labels, rules = (made.onnx / LABELS_FILE).read_text().splitlines(), recipe.boxes.model_dump()
    read = detection.Detection(recipe.side, np.load(made.onnx / ANCHORS), labels, Rules(**rules))
    for file in files:
        pixels, size = to_pixels_and_size(file, Transform(**transform, decode="full"))
        rows = network({"input": pixels[None]}, ["output"])["output"]
        yield read.answer(rows.astype(np.float32), np.array([size]))


def compare_boxes(asked: list[bytes], truth: Truth, recipe: Detection, server: State) -> Outcome:
    with Client(**ask.read_known(server.http), model=recipe.ensemble) as client:
        answers = [boxes(client.detect(file, model=recipe.ensemble).boxes) for file in asked]
    threshold = recipe.boxes.threshold
    pairs = zip(map(truth, asked), answers, strict=True)
    return Outcome("", max(farthest(*pair, threshold) for pair in pairs), "boxes")


def boxes(found: Sequence[Box]) -> Boxes:
    corners = [(box.left, box.top, box.right, box.bottom) for box in found]
    return {
        "BOXES": np.array([corners], np.float32),
        "LABELS": np.array([[box.label.encode() for box in found]]),
        "SCORES": np.array([[box.score for box in found]]),
    }
