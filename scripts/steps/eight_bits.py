"""An ONNX file in int8, all of it or but for some layers. Calibrated once."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

Pixels = NDArray[np.uint8]
# What takes the time, and what is quantised for its own sake; all else follows.
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class Quantiser:
    """`folder` is for files between the steps."""

    def __init__(
        self,
        network: Path,
        views: Iterable[Pixels],
        folder: Path,
        # A percentile, or the entropy, takes more than ten times as long.
        method: CalibrationMethod = CalibrationMethod.MinMax,
    ) -> None:
        logging.getLogger().setLevel(logging.ERROR)  # its advice does not apply here
        self._prepared, self._ranges = folder / "prepared.onnx", folder / "ranges.json"
        self._views, self._method = views, method
        quant_pre_process(network, self._prepared, skip_symbolic_shape=True)
        nodes = onnx.load(self._prepared, load_external_data=False).graph.node
        self.layers = [node.name for node in nodes if node.op_type in LAYERS]

    def parts(self, count: int) -> list[list[str]]:
        """The layers from first to last, in parts of equal length. Neighbours stay together: where
        int8 meets float32, numbers are converted."""
        return [part.tolist() for part in np.array_split(self.layers, count) if len(part)]

    def write(self, target: Path, in_float32: Sequence[str] = ()) -> None:
        quantize_static(
            self._prepared,
            target,
            _Reader(iter(self._views)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,  # as the CPUs' instructions expect
            weight_type=QuantType.QInt8,
            calibrate_method=self._method,
            nodes_to_exclude=list(in_float32),
            calibration_cache_path=self._ranges,  # written by the first
        )


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, views: Iterator[Pixels]) -> None:
        self._views = views

    def get_next(self) -> dict[str, Any] | None:
        view = next(self._views, None)
        return None if view is None else {"input": view[None]}
