"""A network as a callable on the CPU, with OpenVINO. No Triton here."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# If this package is found, OpenVINO reports each import to its makers. Prevented here.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino as openvino  # noqa: E402

TYPES = {
    **{"boolean": "BOOL", "u8": "UINT8", "i8": "INT8", "i16": "INT16", "i32": "INT32"},
    **{"i64": "INT64", "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64"},
}

# Of a batch, at a time. More is no faster on a CPU, and OpenVINO keeps the memory that the largest
# took (10 MB a picture with mobilenet_v2), and more for each size of a batch.
MOST_ROWS = 4

HINTS = {"fp32": "f32", "bf16": "bf16"}


def fits(network: Sequence[int], config: Sequence[int]) -> bool:
    """Whether shapes match (-1: any size): the config may fix what the network leaves open."""
    return len(network) == len(config) and all(
        size in (-1, wanted) for size, wanted in zip(network, config, strict=True)
    )


def has_bf16() -> bool:
    """Whether this CPU computes in bfloat16 natively."""
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def hint(precision: str) -> str:
    """int8 is in the graph itself; this is for what is not quantised, of which a few layers cost
    most of what int8 wins if they are computed in float32. A user's own graph may have int8 too,
    and is computed as it is written unless that is asked for."""
    if precision == "int8":
        return HINTS["bf16" if has_bf16() else "fp32"]
    return HINTS[precision]


def describe_tensor(tensor: Any) -> dict[str, Any]:
    """As a Triton config does."""
    return {
        "data_type": f"TYPE_{TYPES.get(tensor.element_type.get_type_name())}",
        "dims": [-1 if size.is_dynamic else size.get_length() for size in tensor.partial_shape],
    }


class Engine:
    def __init__(self, network: Any, precision: str, threads: int) -> None:
        """`network`: a file, or a model of OpenVINO's."""
        self._network = openvino.Core().compile_model(
            network,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": hint(precision),
                "LP_TRANSFORMS_MODE": precision == "int8",
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                # Pinning works per process: several processes of one thread would all use core 0.
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._request = self._network.create_infer_request()

    @classmethod
    def load(cls, network: Path, threads: int) -> Self:
        """With the precision that stands beside the network, not in a config: two versions may be
        loaded at once. A model that is not of this bundle has none."""
        decided = network.parent / "engine.json"
        precision = json.loads(decided.read_text())["precision"] if decided.exists() else "fp32"
        return cls(network, precision, threads)

    beside = load  # as in onnxruntime_engine

    def require(self, config: Mapping[str, Any]) -> None:
        """Checks the network's inputs and outputs against a Triton config, as Triton's own backends
        do: otherwise each request would fail."""
        for what, tensors in (("input", self._network.inputs), ("output", self._network.outputs)):
            # A tensor that the graph only passes on also has its earlier names in OpenVINO.
            has = {name: describe_tensor(tensor) for tensor in tensors for name in tensor.names}
            for wanted in config[what]:
                shaped = wanted.get("reshape") or {}
                dims = [int(size) for size in shaped.get("shape", wanted["dims"])]
                dims = [-1, *dims] if config.get("max_batch_size", 1) else dims
                name = wanted["name"]
                if name not in has:
                    raise ValueError(
                        f"the network has no {what} '{name}', only {', '.join(sorted(has))}"
                    )
                kind, shape = has[name]["data_type"], has[name]["dims"]
                if kind != wanted["data_type"] or not fits(shape, dims):
                    raise ValueError(
                        f"the network's {what} '{name}' is {kind} {shape}, "
                        f"but the pipeline's is {wanted['data_type']} {dims}"
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
            self.whole({name: each[at : at + MOST_ROWS] for name, each in inputs.items()}, outputs)
            for at in range(0, rows, MOST_ROWS)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in outputs}

    def whole(
        self, inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        """At once, also of tensors without a batch. A copy: the next inference overwrites the
        outputs."""
        results = self._request.infer(dict(inputs), share_inputs=True)
        return {name: results[name].copy() for name in outputs}

    def only_output(self, inputs: Mapping[str, NDArray[np.generic]]) -> NDArray[np.generic]:
        output: NDArray[np.generic] = self._request.infer(dict(inputs), share_inputs=True)[0]
        return output.copy()
