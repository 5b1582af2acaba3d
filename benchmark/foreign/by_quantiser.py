"""Networks in 8 bits, as ONNX Runtime's quantiser writes them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization

from benchmark.foreign.case import Array, pictures
from scripts.steps import engine

# How far from each other two engines compute one: as far as it is served with.
EIGHT_BITS = engine.EIGHT_BITS.difference
KINDS = {"u8": "QUInt8", "s8": "QInt8", "s16": "QInt16"}


class Pictures(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, feed: Callable[[bytes], Array]) -> None:
        self._fed = ({name: feed(file)} for file in pictures(8))

    def get_next(self) -> dict[str, Array] | None:
        return next(self._fed, None)


def by_onnxruntime(model: Any, path: Path, kind: str, feed: Callable[[bytes], Array]) -> None:
    """`kind`: of activations and of weights, such as u8s8, for each channel."""
    logging.getLogger().setLevel(logging.ERROR)  # its advice is for others
    onnx.save(model, before := path.with_name("before.onnx"))
    activations, weights = kind[:-2], kind[-2:]
    quantization.quantize_static(
        *(before, path, Pictures(model.graph.input[0].name, feed)),
        per_channel=True,
        activation_type=quantization.QuantType[KINDS[activations]],
        weight_type=quantization.QuantType[KINDS[weights]],
    )
    before.unlink()
