"""Where a network of the user's own comes from: FROM=."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.base import parts
from scripts.base.errors import UserError
from scripts.base.paths import expand, locate
from scripts.recipes.image import WHOLE

TORCH = (".pt", ".pth", ".pt2", ".ts", ".torchscript")
TAKEN = (
    "name an .onnx file, an .xml of OpenVINO, a TorchScript or torch.export file, "
    "a folder of Hugging Face, timm, MLflow or TensorFlow (a SavedModel), "
    "a .keras or .h5 file, {}timm/NAME, or a name on Hugging Face's hub"
)


PICKLED = (".pkl", ".pickle", ".joblib")
KERAS = (".keras", ".h5")
SAVED_MODEL = "is a program of TensorFlow's, which can read and write files"
KERAS_BY_HAND = "save it as ONNX: model.export('net.onnx', format='onnx')"
CORE_ML = "a model of Core ML", "export the network that it was made from: ONNX=net.onnx"
CONVERT = "python -m tf2onnx.convert"
# What they are, and the way to ONNX.
OTHER = {
    **{".mlmodel": CORE_ML, ".mlpackage": CORE_ML},
    ".safetensors": (
        "weights, and no network",
        "serve it by its architecture: ARCH=resnet18 WEIGHTS=net.safetensors",
    ),
    ".tflite": (
        "a model of TensorFlow Lite",
        f"make it ONNX: {CONVERT} --tflite net.tflite --output net.onnx",
    ),
}


@dataclass(frozen=True)
class Source:
    network: Path | None = None  # as it is
    path: Path | None = None  # what a kind of its own takes as it is
    kind: Any = None  # that kind's adoption.py
    other: str = ""  # what has to be exported first
    by_hand: str = ""  # of TensorFlow's and Keras's: how, where what exports it cannot be installed
    program: str = ""  # why it is code, if it is by its nature


def describe_taken() -> str:
    of_kinds = []
    for each in parts.find("adoption"):
        with parts.name_faults(each.__file__):
            of_kinds.append(each.TAKEN)
    return TAKEN.format("".join(f"{taken}, " for taken in of_kinds if taken))


def find_source(name: str) -> Source:
    path = expand(name)
    if path.is_dir():
        return _in_folder(path.resolve())
    if path.is_file():
        return _of_file(locate(path))
    if path.suffix in (*WHOLE, *TORCH) or name.startswith((".", "/", "~")):
        raise UserError(f"FROM={name} does not exist", f"check the path, from {Path.cwd()}")
    if name.count("/") > 1 or name.startswith("-"):
        raise UserError(f"FROM={name} is neither a file nor a name on a hub", describe_taken())
    return Source(other=name)


def require_trusted(source: Source, trusted: bool) -> None:
    """Of what shows from outside; what is inside is for those who read it."""
    if source.program and not trusted:
        raise UserError(
            f"{source.other} {source.program}",
            f"if you trust its maker: TRUST=1; otherwise {source.by_hand}",
        )


def _of_file(path: Path) -> Source:
    if path.suffix in WHOLE:
        return Source(path)
    if path.suffix in TORCH:
        return Source(other=str(path))
    if path.suffix in KERAS:
        return Source(other=str(path), by_hand=KERAS_BY_HAND)
    if path.suffix in PICKLED:
        raise UserError(
            f"FROM={path.name} is a pickle, which runs code when it is read",
            "read it yourself and save it otherwise: torch.onnx.export(…), or of scikit-learn "
            "skops.io.dump(model, 'model.skops')",
        )
    if kind := _find_kind(path):
        return Source(path=path, kind=kind)
    _require_known(path)
    raise UserError(f"FROM={path.name} is no file of a known kind", describe_taken())


def _require_known(path: Path) -> None:
    if path.suffix in OTHER:
        what, remedy = OTHER[path.suffix]
        raise UserError(f"FROM={path.name} is {what}", remedy)


def _in_folder(folder: Path) -> Source:
    _require_known(folder)
    if (folder / "saved_model.pb").is_file():
        by_hand = f"make it ONNX: {CONVERT} --saved-model {folder} --output net.onnx"
        return Source(other=str(folder), by_hand=by_hand, program=SAVED_MODEL)
    if (folder / "MLmodel").is_file():
        return _of_mlflow(folder)
    if kind := _find_kind(folder):
        return Source(path=folder, kind=kind)
    networks = [*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")]
    networks = networks or [*folder.glob("*.xml")]
    for path in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if path in networks:
            return Source(path)
    if len(networks) == 1:
        return Source(networks[0])
    if networks:
        names = ", ".join(str(path.relative_to(folder)) for path in sorted(networks)[:5])
        raise UserError(
            f"{folder} has several networks ({names})", "name one: FROM=folder/net.onnx"
        )
    if (folder / "config.json").is_file():  # of Hugging Face, and no kind takes it
        return Source(other=str(folder))
    raise UserError(f"{folder} has no network of a known kind", describe_taken())


def _find_kind(path: Path) -> Any:
    """Of pipeline, if one takes this file or folder as it is."""
    for each in parts.find("adoption"):
        with parts.name_faults(each.__file__):
            if each.takes(path):
                return each
    return None


def _of_mlflow(folder: Path) -> Source:
    try:
        content: Any = yaml.safe_load((folder / "MLmodel").read_text())
        flavours: dict[str, Any] = dict(content["flavors"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, ValueError):
        raise UserError(f"{folder}/MLmodel cannot be read", "save the model again") from None
    for flavour, key in (("onnx", "data"), ("pytorch", "model_data"), ("transformers", "")):
        inside = flavours.get(flavour)
        if not isinstance(inside, dict):
            continue
        path = folder / str(inside.get(key) or inside.get("model_binary") or "model")
        if flavour == "pytorch" and path.is_dir():
            path = next((each for each in sorted(path.iterdir()) if each.suffix in TORCH), path)
        if not path.resolve().is_relative_to(folder):
            raise UserError(
                f"{folder}/MLmodel names {path}, which is not in its folder", "save the model again"
            )
        if path.is_file():
            return _of_file(path)
        if path.is_dir() and (path / "config.json").is_file():
            kind = _find_kind(path)
            return Source(path=path, kind=kind) if kind else Source(other=str(path))
    known = ", ".join(sorted(flavours))
    raise UserError(
        f"no network is taken from the MLflow model in {folder} ({known})",
        "name the file in it, if it is of Keras, XGBoost or the like (FROM=folder/model.ubj), "
        "or log it with mlflow.onnx.log_model",
    )
