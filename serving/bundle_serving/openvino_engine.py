"""An ONNX file as a callable on the CPU, by OpenVINO. No Triton here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Where this package is found, OpenVINO reports each import to its makers. Nothing served here does.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402

TYPES = {
    **{"boolean": "BOOL", "u8": "UINT8", "i8": "INT8", "i16": "INT16", "i32": "INT32"},
    **{"i64": "INT64", "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64"},
}

# Of a batch, at a time. More is no faster on a CPU, and OpenVINO keeps the memory that the largest
# took: a gigabyte a process after one of 200 pictures.
MOST_ROWS = 16

# The eight bits of int8 are in the graph itself; this is for the few layers that have none.
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


def fits(network: Sequence[int], config: Sequence[int]) -> bool:
    """Sizes, -1 where any will do: what the network leaves open the config may fix."""
    return len(network) == len(config) and all(
        size in (-1, wanted) for size, wanted in zip(network, config, strict=True)
    )


def has_bf16() -> bool:
    """Whether this processor computes in bfloat16 natively."""
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class Engine:
    def __init__(self, onnx: Path, precision: str, threads: int) -> None:
        self._network = openvino.Core().compile_model(
            onnx,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": HINTS[precision],
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                # Pinning is decided a process: several of one thread each would all sit on core 0.
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._request = self._network.create_infer_request()

    def require(self, config: Mapping[str, Any]) -> None:
        """That the network takes and gives what a Triton config says, as Triton's own backends do:
        else each request would find it out."""
        for what, tensors in (("input", self._network.inputs), ("output", self._network.outputs)):
            # Of one that its graph only passes on, OpenVINO knows the earlier names as well.
            has = {
                name: (
                    f"TYPE_{TYPES.get(tensor.element_type.get_type_name())}",
                    [-1 if size.is_dynamic else size.get_length() for size in tensor.partial_shape],
                )
                for tensor in tensors
                for name in tensor.names
            }
            for wanted in config[what]:
                name, dims = wanted["name"], [-1, *(int(size) for size in wanted["dims"])]
                if name not in has:
                    raise ValueError(
                        f"the network has no {what} '{name}', only {', '.join(sorted(has))}"
                    )
                kind, shape = has[name]
                if kind != wanted["data_type"] or not fits(shape, dims):
                    raise ValueError(
                        f"the network's {what} '{name}' is {kind} {shape}, "
                        f"and the pipeline's {wanted['data_type']} {dims}"
                    )
            fed = {wanted["name"] for wanted in config[what]}
            unfed = [tensor.any_name for tensor in tensors if not fed & tensor.names]
            if what == "input" and unfed:
                raise ValueError(f"the pipeline has no input '{unfed[0]}' for the network")

    def __call__(
        self, inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        rows = len(next(iter(inputs.values())))
        if rows <= MOST_ROWS:
            results = self._request.infer(dict(inputs), share_inputs=True)
            return {name: results[name] for name in outputs}
        parts = [
            self._copied(
                {name: tensor[start : start + MOST_ROWS] for name, tensor in inputs.items()},
                outputs,
            )
            for start in range(0, rows, MOST_ROWS)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in outputs}

    def _copied(
        self, inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        """The next inference writes over what this one gave."""
        results = self._request.infer(dict(inputs), share_inputs=True)
        return {name: results[name].copy() for name in outputs}

    def only_output(self, inputs: Mapping[str, NDArray[np.generic]]) -> NDArray[np.generic]:
        output: NDArray[np.generic] = self._request.infer(dict(inputs), share_inputs=True)[0]
        return output.copy()
