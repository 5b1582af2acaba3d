"""The inputs and outputs of a foreign ONNX file: pixels in, one row of scores out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.base.errors import UserError

HOW = "export it with torch.onnx.export, pixels [batch, 3, side, side], and a dynamic batch"


@dataclass(frozen=True)
class Signature:
    input: str
    output: str
    crop: int
    classes: int


def signature(path: Path) -> Signature:
    model = read(path)
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        found = f"{len(inputs)} inputs and {len(model.graph.output)} outputs"
        raise UserError(f"{path.name} has {found}, not one of each", HOW)
    pixels, scores = inputs[0], model.graph.output[0]
    return Signature(pixels.name, scores.name, _crop(path, pixels), _classes(path, scores))


def read(path: Path) -> Any:
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as fault:
        raise UserError(f"no network at {path} ({fault.strerror})", "name an .onnx file") from None
    except Exception:  # protobuf's errors have no common base class
        model = None
    if model is None or not model.graph.node:  # a short text parses as an empty network
        raise UserError(f"{path} cannot be read as ONNX", "name an .onnx file")
    if any(map(onnx.external_data_helper.uses_external_data, model.graph.initializer)):
        raise UserError(
            f"{path.name} keeps its weights in a separate file",
            "save it as one file: torch.onnx.export(…, external_data=False)",
        )
    return model


def _crop(path: Path, pixels: Any) -> int:
    import onnx

    dims = _dims(pixels)
    square = len(dims) == 4 and dims[1] == 3 and dims[2] is not None and dims[2] == dims[3]
    is_float = pixels.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    if not (square and is_float and dims[0] is None):
        raise UserError(f"{path.name} takes {_said(pixels)}, not float [batch, 3, side, side]", HOW)
    return int(dims[2] or 0)


def _classes(path: Path, scores: Any) -> int:
    dims = _dims(scores)
    if len(dims) != 2 or dims[1] is None:
        raise UserError(f"{path.name} gives {_said(scores)}, not float [batch, classes]", HOW)
    return dims[1]


def _dims(value: Any) -> list[int | None]:
    """None for a dynamic dimension."""
    dims = value.type.tensor_type.shape.dim
    return [each.dim_value if each.HasField("dim_value") else None for each in dims]


def _said(value: Any) -> str:
    import onnx

    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return f"{kind} [{', '.join('dynamic' if d is None else str(d) for d in _dims(value))}]"
