"""What a foreign ONNX file takes and gives: pictures in, a row of numbers out for each."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.networks import is_ir
from scripts.base.errors import UserError
from scripts.intake import ir
from scripts.intake.reading import is_picked

HOW = "export it with torch.onnx.export, pixels [batch, 3, height, width]"
# Other numbers of channels are not pictures that anyone sends.
CHANNELS = (1, 3)
BOX = 4  # corners
MOST_PIXELS = 4096 * 4096
NUMBERS = ("FLOAT", "FLOAT16", "DOUBLE")
LEVELS = ("UINT8", "INT16", "UINT16", "INT32", "INT64")

Size = tuple[int, int]


@dataclass(frozen=True)
class Signature:
    input: str
    kind: str  # of its numbers, as ONNX names it
    channels_last: bool
    channels: int
    size: Size  # height and width
    batch: int | None  # None: any
    output: str
    classes: int
    label: str = ""  # an output beside it, which says the likeliest class
    batch_last: bool = False  # of the output: [classes, batch]
    alone: bool = False  # [classes], of a network that takes one picture

    @property
    def takes_levels(self) -> bool:
        """Whole numbers, as pictures have them."""
        return self.kind in LEVELS


@dataclass(frozen=True)
class Hints:
    """What the user says of a network that its file leaves open."""

    size: Size | None = None
    usual: Size | None = None  # if it may have any, and none is asked for
    output: str = ""
    classes: int = 0


NOTHING = Hints()


def signature(path: Path, hints: Hints = NOTHING, model: Any = None) -> Signature:
    model = model or read(path)
    weights = {each.name for each in (*model.graph.initializer, *model.graph.sparse_initializer)}
    inputs = [each for each in model.graph.input if each.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(each.name for each in inputs) or "none"
        raise UserError(
            f"{path.name} has {len(inputs)} inputs ({names}), not one for pictures", HOW
        )
    (pixels,) = inputs
    batch = next(iter(_dims(pixels)), None)
    scores, classes = _choose_output(path, model, hints, batch)
    channels_last, channels, size = _picture(path, pixels, hints)
    alone = bool(_count_alone(scores, batch))
    label = "" if hints.output else _label_beside(path, model, scores.name, classes, alone)
    return Signature(
        *(pixels.name, _kind(pixels), channels_last, channels, size, batch),
        *(scores.name, classes, label, _is_batch_last(scores), alone),
    )


def read(path: Path) -> Any:
    """The network, without what it keeps in other files."""
    if is_ir(path):
        return ir.outline(path)
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as fault:
        raise UserError(
            f"no network at {path} ({fault.strerror})", "name an .onnx or .xml file"
        ) from None
    except Exception:  # protobuf's errors have no common base class
        model = None
    if model is None or not model.graph.node:  # a short text parses as an empty network
        what = "cannot be read as ONNX" if path.stat().st_size else "is empty"
        raise UserError(f"{path} {what}", "copy or export it again: all of it, as ONNX")
    # Older files list their weights among the inputs too, and are valid as newer ones.
    model.ir_version = max(model.ir_version, 4)
    return model


def whole(path: Path, data: Mapping[str, Path] | None = None) -> Any:
    """The network with what it keeps in other files: beside it, or where `data` says."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    model = read(path)
    for tensor in _tensors(model):
        if not uses_external_data(tensor):
            continue
        try:
            info = ExternalDataInfo(tensor)
            offset, length = int(info.offset or 0), int(info.length or -1)
        except ValueError:
            raise _explain_damage(path, tensor.name) from None
        found = (data or {}).get(Path(str(info.location)).name)
        if found is None:
            raise UserError(
                f"{path.name} keeps weights in {info.location}, which is not beside it",
                "put it there, or save one file: torch.onnx.export(…, external_data=False)",
            )
        with found.open("rb") as file:
            file.seek(offset)
            content = file.read(length)
        if length >= 0 and len(content) != length:
            raise UserError(f"{found.name} is too short for {path.name}", "copy both again")
        tensor.raw_data = content
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    return model


def _explain_damage(path: Path, name: str) -> UserError:
    return UserError(f"{path.name} is damaged: its tensor {name} cannot be read", HOW)


def _tensors(message: Any) -> Iterator[Any]:
    """Wherever in it: also sparse ones, and those of functions, where ONNX Runtime reads them."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else (value,):
                yield from _tensors(part)


def _picture(path: Path, pixels: Any, hints: Hints) -> tuple[bool, int, Size]:
    dims = _dims(pixels)
    what = f"{path.name} takes {_show_value(pixels)}"
    if len(dims) != 4 or _kind(pixels) not in (*NUMBERS, *LEVELS):
        raise UserError(f"{what}, not pictures [batch, 3, height, width]", HOW)
    channels_last = dims[1] not in CHANNELS and dims[3] in CHANNELS
    channels = dims[3] if channels_last else dims[1]
    if channels not in CHANNELS:
        raise UserError(f"{what}: neither colour (3 channels) nor grey (1)", HOW)
    fixed = dims[1:3] if channels_last else dims[2:4]
    asked = hints.size or (None, None)
    if any(None not in (has, want) and has != want for has, want in zip(fixed, asked, strict=True)):
        raise UserError(
            f"{what}, and pictures of {asked[0]}x{asked[1]} are wanted",
            "omit SIZE (or crop in the recipe); a new version keeps the size of the live one",
        )
    usual = hints.size or hints.usual or (None, None)
    size = [has or want for has, want in zip(fixed, usual, strict=True)]
    if None in size:
        raise UserError(
            f"{what}: any height and width", "say which it was trained for: SIZE=224, or 224x320"
        )
    height, width = (int(side or 0) for side in size)
    if min(height, width) < 1 or height * width > MOST_PIXELS or dims[0] == 0:
        raise UserError(f"{what}, which is no size of a picture", HOW)
    return channels_last, int(channels or 0), (height, width)


def has_any_size(model: Any) -> bool:
    """Whether its file leaves open how large its pictures are."""
    weights = {each.name for each in model.graph.initializer}
    return any(
        _dims(each)[1:].count(None) > 1 for each in model.graph.input if each.name not in weights
    )


def _choose_output(path: Path, model: Any, hints: Hints, batch: int | None) -> tuple[Any, int]:
    """The output that is taken, and its number of classes."""
    outputs = {each.name: each for each in _outputs(model)}
    if hints.output:
        if hints.output not in outputs:
            raise UserError(
                f"{path.name} has no output {hints.output}", f"choose one: {', '.join(outputs)}"
            )
        outputs = {hints.output: outputs[hints.output]}
    found = {
        name: classes
        for name, each in outputs.items()
        if (classes := _count_alone(each, batch) or _classes(each, hints))
    }
    picked = [name for name in found if is_picked(model.graph, name)]
    if picked and len(picked) == len(found):
        raise UserError(
            f"{path.name} gives the numbers of the best classes, or of boxes, in {picked[0]}, not "
            "one for each class",
            "export it without what picks them (TopK, NonMaxSuppression)",
        )
    found = {name: classes for name, classes in found.items() if name not in picked}
    if len(found) == 1:
        ((output, classes),) = found.items()
        return outputs[output], classes
    shown = ", ".join(f"{name}: {_show_value(each)}" for name, each in outputs.items()) or "nothing"
    if found:
        names = " or ".join(found)
        remedy = (
            f"say which is the answer: OUTPUT={names} (of a new version: output, in the recipe)"
        )
        raise UserError(f"{path.name} gives {shown}", remedy)
    if any(_is_open(each) for each in outputs.values()):
        raise UserError(
            f"{path.name} does not say how many classes it has ({shown})", "name them: LABELS="
        )
    raise UserError(f"{path.name} gives {shown}, not float [batch, classes]", HOW)


def _label_beside(path: Path, model: Any, output: str, classes: int, alone: bool) -> str:
    """Of other outputs, the one with a label for each picture; what else is beside it may show that
    these are no classes' numbers."""
    others = [each for each in _outputs(model) if each.name != output]
    whole = [each for each in others if _kind(each) in LEVELS]
    of_picture = 0 if alone else 1
    labels = [
        each.name
        for each in whole
        if math.prod(size or 2 for size in _dims(each)[of_picture:]) == 1
    ]
    boxes = [each for each in others if _dims(each)[of_picture + 1 :][-1:] == [BOX]]
    if boxes or len(labels) < len(whole) or (labels and classes == 1):
        shown = ", ".join(f"{each.name}: {_show_value(each)}" for each in _outputs(model))
        raise UserError(
            f"{path.name} gives {shown}: is each number of {output} one class's?",
            f"if so: OUTPUT={output}",
        )
    return labels[0] if labels else ""


def _outputs(model: Any) -> list[Any]:
    """With shapes that the file does not say, but that follow from it."""
    import onnx

    if all(_classes(each, NOTHING) for each in model.graph.output):
        return list(model.graph.output)
    try:
        return list(onnx.shape_inference.infer_shapes(model).graph.output)
    except Exception:  # of a network that is not valid; what runs it says more
        return list(model.graph.output)


def _classes(scores: Any, hints: Hints) -> int:
    """How many, if this can be an answer: a row of floats for each picture, whatever sides of 1
    are around; else 0."""
    if _kind(scores) not in NUMBERS:
        return 0
    if _is_batch_last(scores):
        return int(_dims(scores)[0] or 0)
    if _is_open(scores):
        return hints.classes
    dims = _dims(scores)[1:]
    return math.prod(int(size or 0) for size in dims) if sum(d != 1 for d in dims) <= 1 else 0


def _count_alone(scores: Any, batch: int | None) -> int:
    """The classes of an output that has no batch, of a network that takes one picture; else 0."""
    if batch != 1 or _kind(scores) not in NUMBERS:
        return 0
    dims = _dims(scores)
    (first, *more) = dims or [None]
    return first if first and first > 1 and all(size == 1 for size in more) else 0


def _is_batch_last(scores: Any) -> bool:
    """Whether it is a column of classes for each picture: of what is known and what is open, only
    the batch may be any."""
    dims = _dims(scores)
    return len(dims) == 2 and dims[1] is None and dims[0] not in (None, 0, 1)


def _is_open(scores: Any) -> bool:
    """Whether only the number of classes is unknown."""
    if _kind(scores) not in NUMBERS:
        return False
    if not scores.type.tensor_type.HasField("shape"):
        return True
    dims = _dims(scores)[1:]
    return dims.count(None) == 1 and sum(size != 1 for size in dims) == 1


def _kind(value: Any) -> str:
    import onnx

    try:
        return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))
    except ValueError:
        return "UNKNOWN"


def _dims(value: Any) -> list[int | None]:
    """None for a dynamic dimension."""
    dims = value.type.tensor_type.shape.dim
    # Some exporters write -1 for what is open.
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in dims]
    return [None if size is not None and size < 0 else size for size in sizes]


def _show_value(value: Any) -> str:
    if not value.type.HasField("tensor_type"):
        return str(value.type.WhichOneof("value")).removesuffix("_type")
    sizes = ("dynamic" if size is None else str(size) for size in _dims(value))
    return f"{_kind(value).lower()} [{', '.join(sizes)}]"
