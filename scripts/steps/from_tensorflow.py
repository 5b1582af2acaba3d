"""A network of TensorFlow or Keras -> an ONNX file, compared with TensorFlow itself.

    python -m scripts.steps.from_tensorflow --source birds --out own/networks/birds/birds.onnx

A source is the folder of a SavedModel, or a file of Keras: birds.keras, birds.h5.
"""

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.artefacts.exporting import start
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import UserError, reword_faults

# The newest that tf2onnx writes without a word.
OPSET = 18
SAME = 0.001  # of the largest score
USUAL = 224  # of a network that takes pictures of any size
SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Network:
    call: Callable[[Any], Any]
    taken: Any  # TensorFlow's description of its input
    kept: Any = None  # what the variables belong to


def main(source: Path, out: Path, size: tuple[int, int] = (USUAL, USUAL)) -> None:
    """`size`: height and width."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    # It would write of its own arithmetic between our lines.
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    with files.whole_folder(out.parent) as draft:
        convert(source, size, draft / out.name)


def convert(source: Path, size: tuple[int, int], path: Path) -> None:
    with step(f"loading {source.name} by TensorFlow"):
        network = _load_network(source)
    with step("converting it to ONNX"):
        _convert_network(network, source, path)
    with step("comparing it with TensorFlow"):
        _require_the_same(network, size, path)


def _load_network(source: Path) -> Network:
    remedy = "save it again: model.export('folder')"
    with reword_faults(f"{source.name} cannot be read by TensorFlow", remedy):
        network = _of_keras(source) if source.is_file() else _of_saved_model(source)
    if network.taken.shape.rank != 4:
        raise UserError(
            f"{source.name} takes {network.taken.shape}, not pictures",
            "name a classifier of pictures: [batch, height, width, 3]",
        )
    return network


def _of_keras(source: Path) -> Network:
    """Keras refuses code in a file (safe_mode)."""
    import keras
    import tensorflow as tf

    model = keras.saving.load_model(source, compile=False)
    (taken,) = _one(source, model.inputs)
    described = tf.TensorSpec(taken.shape, taken.dtype)
    return Network(lambda pixels: model(pixels, training=False), described, model)


def _of_saved_model(source: Path) -> Network:
    import tensorflow as tf

    model = tf.saved_model.load(source)
    signatures = model.signatures
    if SIGNATURE not in signatures:
        raise UserError(
            f"{source.name} has no signature {SIGNATURE}", "save it again: model.export('folder')"
        )
    serving = signatures[SIGNATURE]
    ((name, taken),) = _one(source, serving.structured_input_signature[1].items())
    return Network(lambda pixels: serving(**{name: pixels}), taken, model)


def _one(source: Path, inputs: Any) -> Any:
    if len(inputs) != 1:
        raise UserError(
            f"{source.name} has {len(inputs)} inputs, not one for pictures",
            "name a classifier of pictures: [batch, height, width, 3]",
        )
    return inputs


def _convert_network(network: Network, source: Path, path: Path) -> None:
    import tensorflow as tf
    import tf2onnx

    described = tf.TensorSpec(network.taken.shape, network.taken.dtype, name="pixels")
    remedy = "export it yourself: ONNX=net.onnx"
    with reword_faults(f"tf2onnx cannot convert {source.name}", remedy):
        tf2onnx.convert.from_function(
            tf.function(network.call), [described], opset=OPSET, output_path=str(path)
        )


def _require_the_same(network: Network, size: tuple[int, int], path: Path) -> None:
    import tensorflow as tf

    from scripts.intake.original import Session, require_near

    noise = _noise(network.taken, size)
    expected = [each.numpy() for each in tf.nest.flatten(network.call(tf.constant(noise)))]
    found = Session(path, "the exported network").run(None, {"pixels": noise})
    for one, other in zip(expected, found, strict=True):
        require_near(one, other, SAME, "TensorFlow")


def _noise(taken: Any, size: tuple[int, int]) -> NDArray[Any]:
    usual = (3, *size, 3)
    shape = [known or least for known, least in zip(taken.shape, usual, strict=True)]
    random, kind = np.random.default_rng(0), taken.dtype.as_numpy_dtype
    if np.issubdtype(kind, np.integer):
        return random.integers(0, 256, shape).astype(kind)
    return random.standard_normal(shape).astype(kind)


if __name__ == "__main__":
    start(main)
