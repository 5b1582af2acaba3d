"""Networks that are made in no time, for what looks at their form alone."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from scripts.artefacts.manifest import Manifest

SIDE = 32

needs_nvidias_builder = pytest.mark.skipif(
    find_spec("tensorrt_rtx_bindings") is None,
    reason="TensorRT for RTX is for x86-64 Linux and Python 3.11 or 3.12",
)


def tiny(
    path: Path,
    compute: int = TensorProto.FLOAT16,
    cast: bool = True,
    batch: Any = "batch",
    weights: Any = None,
) -> Path:
    """uint8 -> Cast -> Conv -> GlobalAveragePool -> Flatten -> Gemm -> Cast -> fp32"""
    kind = np.float16 if compute == TensorProto.FLOAT16 else np.float32
    random = np.random.default_rng(0)
    known = {
        "conv.weight": random.standard_normal((4, 3, 3, 3)).astype(weights or kind),
        "conv.bias": np.zeros(4, weights or kind),
        "fc.weight": random.standard_normal((5, 4)).astype(kind),
        "fc.bias": np.zeros(5, kind),
    }
    first = "input" if cast else "same"
    nodes = [
        helper.make_node("Cast", [first], ["pixels"], "cast", to=compute),
        helper.make_node("Conv", ["pixels", "conv.weight", "conv.bias"], ["features"], "conv"),
        helper.make_node("GlobalAveragePool", ["features"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["scores"], "fc", transB=1),
        helper.make_node("Cast", ["scores"], ["output"], "out", to=TensorProto.FLOAT),
    ]
    if not cast:
        nodes.insert(0, helper.make_node("Identity", ["input"], ["same"], "identity"))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.UINT8, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, 5])],
        [onnx.numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return path


def means(folder: Path, output: str = "output") -> Path:
    """As the export of embeddings leaves one: the mean of each channel."""
    pixels = helper.make_tensor_value_info("input", TensorProto.UINT8, ["batch", 3, SIDE, SIDE])
    vectors = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Cast", ["input"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["levels", "axes"], ["means"], keepdims=0),
        helper.make_node("LpNormalization", ["means"], [output], axis=1, p=2),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
    graph = helper.make_graph(nodes, "means", [pixels], [vectors], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    transform = {"resize": SIDE, "crop": SIDE}
    manifest = Manifest({"arch": "means"}, True, transform, {"dimensions": 3}, {})
    (folder / "manifest.json").write_text(manifest.dump())
    (folder / "network.txt").write_text("means, weights random (untrained)\n")
    return folder


def draw_network(path: Path, seed: int = 0) -> Path:
    """Of ten birds, without PyTorch."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(48, 10)).astype(np.float32)
    pixels, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("pixels", ("n", 3, 64, 64)), ("scores", ("n", 10)))
    )
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["a"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "weights"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "birds", [pixels], [scores], [onnx.numpy_helper.from_array(weights, "weights")]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path
