"""A foreign network -> the same network with uint8 pixels in and scores out, like ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from scripts.steps.signature import read, signature


def adopted(path: Path, mean: Sequence[float], std: Sequence[float]) -> onnx.ModelProto:
    """Cast and normalisation become the first nodes of its graph; a final softmax is removed, since
    the postprocessing applies one."""
    facts, model = signature(path), read(path)
    graph = model.graph
    _rename(graph, {facts.input: "_normalised", facts.output: "_answer"})
    answer = _without_softmax(graph, "_answer")
    for name, values in (("_mean", mean), ("_std", std)):
        scale = (np.array(values, np.float32) * 255).reshape(1, 3, 1, 1)
        graph.initializer.append(numpy_helper.from_array(scale, name))
    first = [
        helper.make_node("Cast", ["input"], ["_pixels"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["_pixels", "_mean"], ["_centred"]),
        helper.make_node("Div", ["_centred", "_std"], ["_normalised"]),
    ]
    weights = {each.name for each in graph.initializer}
    pixels = helper.make_tensor_value_info(
        "input", TensorProto.UINT8, ["batch", 3, facts.crop, facts.crop]
    )
    scores = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", facts.classes])
    last = helper.make_node("Identity", [answer], ["output"])
    _replace(graph.node, [*first, *graph.node, last])
    # Older files list their weights among the inputs.
    _replace(graph.input, [pixels, *(each for each in graph.input if each.name in weights)])
    _replace(graph.output, [scores])
    onnx.checker.check_model(model, full_check=True)
    return model


def gives_probabilities(path: Path) -> bool:
    """Whether it ends in a softmax, which the postprocessing would repeat."""
    graph = read(path).graph
    last = next(node for node in graph.node if graph.output[0].name in node.output)
    return bool(last.op_type == "Softmax")


def _replace(field: Any, values: list[Any]) -> None:
    del field[:]
    field.extend(values)


def _rename(graph: Any, names: dict[str, str]) -> None:
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]


def _without_softmax(graph: Any, answer: str) -> str:
    """Removes the final softmax; returns the name of its input, the scores."""
    for node in graph.node:
        if answer in node.output and node.op_type == "Softmax":
            graph.node.remove(node)
            return str(node.input[0])
    return answer
