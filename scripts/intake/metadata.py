"""What lies beside a network, or in it, about the pictures that it wants and its labels: files of
Hugging Face, timm and Ultralytics."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.base.errors import UserError
from scripts.base.files import read_json

# Pillow's numbers of its filters, as Hugging Face writes them.
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# What was found out when a network was taken in.
ABOUT = "about.json"
DETECTORS = "ForObjectDetection"  # Hugging Face's: how their architectures end
# Hugging Face's kinds that take one number as the short side; the others, as both.
OF_SHORT_SIDE = (
    *("Bit", "CLIP", "ChineseCLIP", "ConvNext", "Levit", "MobileNet", "MobileViT", "PoolFormer"),
    *("SiglipImage", "TextNet", "ViTHybrid"),
)
USUAL: Mapping[str, Any] = {
    **{"fit": "crop", "pad": 0, "middle": "even", "interpolation": "bilinear"},
    **{"channels": "rgb", "scale": 255.0},
    **{"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
}
AS_PICTURES = {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}


@dataclass(frozen=True)
class Found:
    pictures: Mapping[str, Any] = field(default_factory=dict)  # keys of a recipe's `pictures`
    labels: tuple[str, ...] = ()
    gives: str = ""
    source: str = ""  # where it says so


def find_beside(network: Path, properties: Mapping[str, str]) -> Found:
    """`properties`: what the ONNX file says of itself."""
    homes = (network.parent, *(network.parents[1:2] if network.parent.name == "onnx" else ()))
    beside_it = _properties(network.with_name("metadata.yaml"))
    for found in (*map(in_folder, homes), *map(of_ultralytics, (properties, beside_it))):
        if found.source:
            return found
    return Found()


def in_folder(folder: Path) -> Found:
    if about := read_json(folder / ABOUT):
        return Found(about["pictures"], tuple(about["labels"]), about["gives"], ABOUT)
    config = read_json(folder / "config.json")
    labels = _labels(config)
    for name in ("preprocessor_config.json", "processor_config.json"):
        processor = read_json(folder / name)
        processor = processor.get("image_processor", processor)
        if pictures := of_hugging_face(processor):
            return Found(pictures, labels, gives_of(config, folder.name), name)
    if pictures := of_timm(config.get("pretrained_cfg", config)):
        return Found(pictures, labels, "", "config.json")
    gives = gives_of(config, folder.name)
    return Found({}, labels, gives, "config.json") if labels else Found()


def of_a_detector(config: Mapping[str, Any]) -> bool:
    """A config.json of transformers."""
    named = config.get("architectures")
    return isinstance(named, list) and any(str(name).endswith(DETECTORS) for name in named)


def gives_of(config: Mapping[str, Any], name: str) -> str:
    """What the network `name` gives, if its config.json says so."""
    problem = config.get("problem_type")
    if problem == "regression":
        raise UserError(
            f"{name} gives values, not classes (problem_type in its config.json)",
            "serve it as a function: make add-callable FILE=mine.py",
        )
    return "multi-label" if problem == "multi_label_classification" else ""


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        if names := config.get("id2label"):
            return tuple(str(names[str(number)]) for number in range(len(names)))
        if names := config.get("label_names"):
            about = config.get("label_descriptions") or {}
            return tuple(str(about.get(name, name)) for name in names)
    except (AttributeError, KeyError, TypeError):
        pass
    return ()


def of_timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """A timm network's pretrained_cfg, or data config."""
    try:
        channels, height, width = config["input_size"]
        share = float(config.get("crop_pct") or 0.875)
        crop = (int(height), int(width))
        fits = {"center": "crop", "squash": "squash", "border": "letterbox"}
        fit = fits[config.get("crop_mode") or "center"]
        mean = _levels(config["mean"], channels)
        # Its borders have the mean colour; ours are as grey.
        pad = {"pad": round(255 * sum(mean) / len(mean))} if fit == "letterbox" else {}
        return {
            **_crop(crop),
            "resize": int(min(crop) / share),
            "fit": fit,
            **pad,
            "interpolation": _filter(config.get("interpolation") or "bilinear"),
            "mean": mean,
            "std": _levels(config["std"], channels),
            **({"channels": "grey"} if channels == 1 else {}),
        }
    except (KeyError, TypeError, ValueError):
        return {}


def of_hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    """A preprocessor_config.json, of the processors of pictures that resize and crop."""
    kind = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    try:
        pictures: dict[str, Any] = {
            **_sides(config, kind),
            "middle": "first",
            "interpolation": _filter(config.get("resample", 2)),
            "scale": 1 / float(config.get("rescale_factor") or 1 / 255),
        }
        if not config.get("do_rescale", True):
            pictures["scale"] = 1.0
        normalises = "image_mean" in config and "MobileViT" not in kind
        pictures |= AS_PICTURES
        if config.get("do_normalize", normalises):
            pictures |= _normalise(config, kind)
        if config.get("do_flip_channel_order"):
            pictures["channels"] = "bgr"
        return pictures
    except (LookupError, TypeError, ValueError):
        return {}


def _normalise(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    mean, std = (_levels(config[f"image_{name}"], 3) for name in ("mean", "std"))
    if config.get("rescale_offset"):  # EfficientNet's: 1 less, before all else
        mean = [1 + each for each in mean]
    if config.get("include_top") and "EfficientNet" in kind:  # which divides twice
        std = [each * each for each in std]
    return {"mean": mean, "std": std}


def _sides(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    size: Any = config["size"]
    crop: Any = config.get("crop_size")
    if isinstance(size, int):
        is_short = kind.startswith(OF_SHORT_SIDE)
        size = {"shortest_edge": size} if is_short else {"height": size, "width": size}
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    cropped = config.get("do_center_crop", False) and crop
    if "height" in size:
        sides = (size["height"], size["width"])
        inside = (crop["height"], crop["width"]) if cropped else sides
        return {"fit": "squash", **_crop(inside), "resize": min(sides)}
    short = size["shortest_edge"]
    if config.get("crop_pct"):  # ConvNeXT's
        if short >= 384:
            return {"fit": "squash", "crop": short, "resize": short}
        return {"fit": "crop", "crop": short, "resize": int(short / config["crop_pct"])}
    if "Levit" in kind:
        short = int(256 / 224 * short)
    inside = (crop["height"], crop["width"]) if cropped else (short, short)
    return {"fit": "crop", **_crop(inside), "resize": short}


def _crop(sides: tuple[int, int]) -> dict[str, Any]:
    if min(sides) < 1:
        raise ValueError(sides)
    return {"crop": sides[0] if sides[0] == sides[1] else list(sides)}


def _filter(resample: int | str) -> str:
    name = FILTERS[resample] if isinstance(resample, int) else resample
    return {"random": "bilinear", "lanczos3": "lanczos"}.get(name, name)


def _levels(values: float | Sequence[float], channels: int) -> list[float]:
    return [float(each) for each in values] if isinstance(values, Sequence) else [values] * channels


def _properties(path: Path) -> dict[str, str]:
    """What Ultralytics writes beside files that have no room for it."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return (
        {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    )


def of_ultralytics(properties: Mapping[str, str]) -> Found:
    """Its exports carry their classes and their size."""
    try:
        if properties.get("task") != "classify":
            return Found()
        names, (height, width) = map(ast.literal_eval, (properties["names"], properties["imgsz"]))
        labels = tuple(str(names[number]) for number in range(len(names)))
        sides = _crop((height, width))
    except (KeyError, TypeError, ValueError, SyntaxError):
        return Found()
    pictures = {**sides, "resize": min(height, width), **AS_PICTURES}
    return Found(pictures, labels, "", "the file's own metadata")
