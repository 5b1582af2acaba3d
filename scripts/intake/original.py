"""The user's own network in ONNX Runtime, or OpenVINO, as they would run it themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bundle_serving.networks import is_ir
from bundle_serving.onnxruntime_engine import UNSOUND
from bundle_serving.scores import sigmoid, softmax
from scripts.base.errors import UserError
from scripts.intake import plain
from scripts.intake.reading import Reading
from scripts.intake.signature import Signature

# One that can be run: an ONNX file's content, or a model of OpenVINO.
Runnable: TypeAlias = Any
# The outputs of these names, or all, for inputs by name.
Run = Callable[[Sequence[str] | None, Mapping[str, NDArray[Any]]], list[NDArray[Any]]]

REMEDY = "check that it runs by itself, or export it again"
# Of an operator that ONNX Runtime has, and not in this type: convolutions in float64, say.
NOT_IN_THIS_TYPE = "Could not find an implementation for"
IN_FLOAT32 = "export it in float32 (network.float() before the export)"
SAID = 300  # characters of what an engine says
# How far from usual inputs a network is probed: scores leave any interval there, and
# probabilities do not.
WILD = (30.0, 1000.0)
# Of the range of its numbers.
SAME = 0.001


class Session:
    """What cannot be run is refused by its name."""

    def __init__(self, network: Runnable | Path, name: str) -> None:
        is_onnx = not is_ir(network) if isinstance(network, Path) else isinstance(network, bytes)
        self._name = name
        with explain_refusals(name):
            self._run = (_in_onnxruntime if is_onnx else _in_openvino)(network)

    def run(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, NDArray[Any]]
    ) -> list[NDArray[Any]]:
        with explain_refusals(self._name):
            return self._run(outputs, inputs)


@contextmanager
def explain_refusals(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as fault:  # ONNX Runtime's exceptions have no common base class
        said = " ".join(str(fault).split())
        if len(said) > SAID:  # where it is comes first, and why last
            said = f"{said[: SAID // 3]} … {said[-SAID * 2 // 3 :]}"
        remedy = IN_FLOAT32 if NOT_IN_THIS_TYPE in said else REMEDY
        raise UserError(f"{name} cannot be run: {said}", remedy) from None


def _in_onnxruntime(network: bytes | Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong comes as an exception
    # Threads that wait by spinning take the cores from whatever else runs here.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # onnxruntime 1.31 crashes with more optimisations on vit_b_16 in half precision.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    found: Run = onnxruntime.InferenceSession(
        network, options, ["CPUExecutionProvider"], disabled_optimizers=UNSOUND
    ).run
    return found


def _in_openvino(network: Any) -> Run:
    """As a user would run it: in float32, whatever the precision of its file."""
    from bundle_serving.openvino_engine import Engine

    engine = Engine(network, "fp32", threads=0)
    return lambda outputs, inputs: list(engine.whole(inputs, outputs or ()).values())


def rows(asked: Session, pixels: NDArray[np.uint8], together: bool) -> NDArray[np.float32]:
    """The scores of an exported network, which takes several pictures at once or one by one."""
    parts = [pixels] if together else [pixels[at : at + 1] for at in range(len(pixels))]
    return np.concatenate([asked.run(["output"], {"input": part})[0] for part in parts])


def require_near(expected: NDArray[Any], found: NDArray[Any], same: float, by: str) -> None:
    """`same`: of the largest score; `by`: what the other comes from."""
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    if found.shape != expected.shape:
        what = f"the shape {found.shape}, not {expected.shape}"
    elif (off := float(np.abs(found - expected).max(initial=0))) > same * scale:
        what = f"scores up to {scale:.3g}, of which one is off by {off:.2g}"
    else:
        return
    raise UserError(
        f"the exported network answers otherwise than {by}: {what}", "export it yourself: ONNX="
    )


class Original:
    def __init__(
        self, network: Runnable, name: str, facts: Signature, how: Mapping[str, Any]
    ) -> None:
        self._session = Session(network, name)
        self._name, self._facts, self._how = name, facts, how

    def prepare_as(self, how: Mapping[str, Any]) -> Original:
        """The same, with pictures prepared in another way."""
        other = copy.copy(self)
        other._how = how
        return other

    def numbers(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """What it gives for pictures [height, width, 3], each by itself."""
        return np.concatenate([self._row(self._feed(each)) for each in pictures])

    def of_file(self, file: bytes) -> NDArray[np.float32]:
        """What it gives for an image file."""
        return self.numbers([plain.pixels(file, self._how)])

    def wild(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """What it gives for inputs that are no pictures, where that is finite; of a network that
        takes levels there are none."""
        rows = []
        for picture in pictures if not self._facts.takes_levels else ():
            for factor in WILD:
                fed = self._feed(picture).astype(np.float64) * factor
                most = np.finfo(np.float16).max / 2 if self._facts.kind == "FLOAT16" else np.inf
                kind = self._feed(picture).dtype
                rows.append(self._row(np.clip(fed, -most, most).astype(kind)))
        found = np.concatenate(rows) if rows else np.zeros((0, self._facts.classes), np.float32)
        finite: NDArray[np.float32] = found[np.isfinite(found).all(axis=1)]
        return finite

    def require_likeliest(
        self, label: str, pictures: Sequence[NDArray[np.uint8]], numbers: NDArray[np.float32]
    ) -> None:
        """Its label is that of the largest number: otherwise these are of something else."""
        for picture, row in zip(pictures, numbers, strict=True):
            batch = np.repeat(self._feed(picture), self._facts.batch or 1, axis=0)
            (found,) = self._session.run([label], {self._facts.input: batch})
            number = int(np.asarray(found).ravel()[0])
            if not (0 <= number < len(row) and row[number] >= row.max() - SAME * np.ptp(row)):
                name = self._facts.output
                raise UserError(
                    f"{self._name}'s {label} is not the largest of its {name}: is each of these "
                    "numbers one class's?",
                    f"if so: OUTPUT={name}",
                )

    def _feed(self, picture: NDArray[np.uint8]) -> NDArray[Any]:
        return plain.make_input(picture, self._how, self._facts)

    def _row(self, fed: NDArray[Any]) -> NDArray[np.float32]:
        """One picture, as often as the network wants."""
        batch = np.repeat(fed, self._facts.batch or 1, axis=0)
        (found,) = self._session.run([self._facts.output], {self._facts.input: batch})
        given = np.asarray(found)
        given = given.T if self._facts.batch_last else given
        if given.size != len(batch) * self._facts.classes:
            raise UserError(
                f"{self._name} gives {list(given.shape)} for {len(batch)} pictures, not "
                f"{self._facts.classes} numbers for each",
                "export it again, so that it gives [batch, classes]",
            )
        row: NDArray[np.float32] = given.reshape(len(batch), -1)[:1].astype(np.float32)
        return row


def scores(numbers: NDArray[np.float32], reading: Reading) -> NDArray[np.float32]:
    """What served scores are compared with: logarithms, or of labels that do not exclude each
    other the probabilities themselves."""
    found = probabilities(numbers, reading)
    if reading.answers == "multi-label":
        return found
    logarithms: NDArray[np.float32] = np.log(np.maximum(found, np.float32(1e-30)))
    return logarithms


def probabilities(numbers: NDArray[np.float32], reading: Reading) -> NDArray[np.float32]:
    """What a network's output says of each class: of one class, that it is not, and that it is."""
    if reading.gives == "multi-label":
        return numbers if reading.bounded else sigmoid(numbers)
    if numbers.shape[1] == 1:
        true = numbers if reading.bounded else sigmoid(numbers)
        return np.concatenate([1 - true, true], axis=1)
    return numbers if reading.bounded else softmax(numbers)
