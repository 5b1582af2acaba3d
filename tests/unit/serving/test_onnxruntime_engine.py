"""ONNX Runtime computes a network as it is written."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bundle_serving import onnxruntime_engine
from scripts.base.errors import UserError
from scripts.intake import original


@pytest.fixture
def padded_maximum(tmp_path: Path) -> Path:
    """Zeros around the pixels, then the best of each three by three."""
    nodes = [
        helper.make_node("Pad", ["input", "pads"], ["padded"]),
        helper.make_node("MaxPool", ["padded"], ["output"], kernel_shape=[3, 3], strides=[2, 2]),
    ]
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1, side, side])
        for name, side in (("input", 5), ("output", 3))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [pads])
    versions = [helper.make_opsetid("", 17)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)
    return path


def test_a_border_of_zeros_is_greater_than_what_is_negative(padded_maximum: Path) -> None:
    pixels = np.full((1, 1, 5, 5), -7, np.float32)
    expected = np.zeros((1, 1, 3, 3), np.float32)
    expected[0, 0, 1, 1] = -7
    served = onnxruntime_engine.Engine(padded_maximum, 1).only_output({"input": pixels})
    np.testing.assert_array_equal(served, expected)
    judged = original.Session(padded_maximum, "it").run(None, {"input": pixels})[0]
    np.testing.assert_array_equal(judged, expected)


def test_a_type_that_is_not_computed_has_its_remedy(padded_maximum: Path) -> None:
    network = onnx.load(padded_maximum)
    del network.graph.node[:]
    node = helper.make_node("Conv", ["input", "weights"], ["output"])
    network.graph.node.append(node)
    weights = np.zeros((1, 1, 3, 3))
    network.graph.initializer.append(numpy_helper.from_array(weights, "weights"))
    for each in (*network.graph.input, *network.graph.output):
        each.type.tensor_type.elem_type = TensorProto.DOUBLE
    with pytest.raises(UserError, match="Could not find an implementation for Conv") as refused:
        original.Session(network.SerializeToString(), "it")
    assert refused.value.remedy.startswith("export it in float32")
