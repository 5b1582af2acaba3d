"""An ONNX file as a callable on the CPU, by OpenVINO. No Triton here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Where this package is found, OpenVINO reports each import to its makers. Nothing served here does.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402

# The eight bits of int8 are in the graph itself; this is for the few layers that have none.
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


def has_bf16() -> bool:
    """Whether this processor computes in bfloat16 natively."""
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class Engine:
    def __init__(self, onnx: Path, precision: str, threads: int) -> None:
        self._request = (
            openvino.Core()
            .compile_model(
                onnx,
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": HINTS[precision],
                    "INFERENCE_NUM_THREADS": threads,
                    "NUM_STREAMS": 1,
                    # Pinning is decided a process: several of one thread each would all sit on
                    # core 0.
                    "ENABLE_CPU_PINNING": False,
                },
            )
            .create_infer_request()
        )

    def __call__(
        self, inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        results = self._request.infer(dict(inputs), share_inputs=True)
        return {name: results[name] for name in outputs}
