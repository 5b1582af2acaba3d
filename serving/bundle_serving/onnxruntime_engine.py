"""A network as a callable, with ONNX Runtime: a model of tables, whose operators OpenVINO has not;
and what OpenVINO computes otherwise than it is written, or not at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# In a manifest.json or engine.json beside a network: what runs it, if that is not OpenVINO.
NAME = "onnxruntime"
# Optimisations of 1.31 that change answers: zeros written before a maximum become its own padding,
# which counts for nothing, so that a border of negative values stays negative.
UNSOUND = ["Pad_Fusion"]


def runs(network: Path) -> bool:
    return NAME in (
        _describe(network.with_name("manifest.json")).get("onnx", {}).get("engine"),
        _describe(network.with_name("engine.json")).get("engine"),
    )


def takes_missing(network: Path) -> bool:
    """Rows in which numbers are missing."""
    return bool(_describe(network.with_name("manifest.json")).get("onnx", {}).get("missing", True))


def _describe(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


class Engine:
    def __init__(self, network: Path, threads: int) -> None:
        import onnxruntime  # 20 MB of each process, most of which never need it

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # what is wrong comes as an exception
        # As it is written: with more, 8 bits are rounded in other places.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Threads that wait by spinning take the cores from whatever else runs here.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            network, options, ["CPUExecutionProvider"], disabled_optimizers=UNSOUND
        )

    def require(self, config: Mapping[str, Any]) -> None:
        """Its tensors are those of a Triton config."""
        session = self._session
        for what, has in (("input", session.get_inputs()), ("output", session.get_outputs())):
            found = {each.name: each.shape[1:] for each in has}
            wanted = {each["name"]: [*map(int, each["dims"])] for each in config[what]}
            if found != wanted:
                raise ValueError(f"the network's {what} is {found}, but the pipeline's is {wanted}")

    def __call__(
        self, inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        return dict(zip(outputs, self._session.run(outputs, dict(inputs)), strict=True))

    whole = __call__  # of tensors without a batch

    def only_output(self, inputs: Mapping[str, NDArray[np.generic]]) -> NDArray[np.generic]:
        found: NDArray[np.generic] = self._session.run(None, dict(inputs))[0]
        return found


def load_engine(network: Path, threads: int) -> Any:
    """What runs it: this, or OpenVINO."""
    if runs(network):
        return Engine(network, threads)
    from bundle_serving import openvino_engine

    return openvino_engine.Engine.load(network, threads)


# Programs that a release up to November 2026 wrote into own/, or published, call it so.
beside = load_engine
