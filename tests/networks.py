"""Networks of a few numbers, where what they see does not matter."""

from __future__ import annotations

import json
from pathlib import Path

from onnx import TensorProto, helper, save

SIDE = 32


def means(folder: Path) -> Path:
    """As the export of embeddings leaves one: the mean of each channel."""
    pixels = helper.make_tensor_value_info("input", TensorProto.UINT8, ["batch", 3, SIDE, SIDE])
    vectors = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Cast", ["input"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["levels", "axes"], ["means"], keepdims=0),
        helper.make_node("LpNormalization", ["means"], ["embedding"], axis=1, p=2),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
    graph = helper.make_graph(nodes, "means", [pixels], [vectors], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    save(model, folder / "model.onnx")
    transform = {"resize": SIDE, "crop": SIDE}
    manifest = {"onnx": {"dimensions": 3}, "transform": transform}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "network.txt").write_text("means, weights random (untrained)\n")
    return folder
