"""Networks as other people's tools write them, made by hand of a few nodes, and what each of them
says of a picture. Random weights: only the form counts."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIDE, CLASSES = 32, 5
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

Array = NDArray[Any]


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(scores: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-scores)))


def picture(seed: int, size: tuple[int, int] = (90, 60)) -> bytes:
    """An image file of colours that change slowly, so that how it is resized hardly counts."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (4, 4, 3), np.uint8))
    file = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()


@dataclass
class Graph:
    """Nodes and weights, in the order in which they are added."""

    opset: int = 17
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    random: Any = field(default_factory=lambda: np.random.default_rng(7))

    def add(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def weight(self, values: Any, name: str = "") -> str:
        name = name or f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def noise(self, *shape: int, scale: float = 1.0, dtype: Any = np.float32) -> str:
        return self.weight((self.random.standard_normal(shape) * scale).astype(dtype))

    def body(
        self, pixels: str, channels: int = 3, classes: int = CLASSES, dtype: Any = np.float32
    ) -> str:
        """Pixels [batch, channels, height, width] -> scores."""
        conv = self.add("Conv", pixels, self.noise(6, channels, 3, 3, dtype=dtype), strides=[2, 2])
        pooled = self.add("GlobalAveragePool", self.add("Relu", conv))
        flat = self.add("Flatten", pooled)
        return self.add(
            "Gemm",
            flat,
            self.noise(6, classes, scale=2, dtype=dtype),
            self.noise(classes, dtype=dtype),
        )

    def model(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        ir: int = 8,
        **fields: Any,
    ) -> Any:
        graph = helper.make_graph(self.nodes, "net", list(inputs), list(outputs), self.weights)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=ir, **fields)


def value(name: str, dims: Sequence[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(dims))


PIXELS = value("x", ["n", 3, SIDE, SIDE])


def ended(*ops: Callable[[Graph, str], str], classes: int = CLASSES, name: str = "y") -> Any:
    """A network of floats with this end."""
    graph = Graph()
    last = graph.body("x", classes=classes)
    for each in ops:
        last = each(graph, last)
    graph.add("Identity", last, out=name)
    return graph.model([PIXELS], [value(name, ["n", classes])])


def op(kind: str, *values: Any, **attributes: Any) -> Callable[[Graph, str], str]:
    def add(graph: Graph, last: str) -> str:
        constants = [graph.weight(np.float32(each)) for each in values]
        return graph.add(kind, last, *constants, **attributes)

    return add


def written_out(graph: Graph, last: str) -> str:
    """A softmax of single operators."""
    powers = graph.add("Exp", last)
    total = graph.add("ReduceSum", powers, graph.weight(np.array([1])), keepdims=1)
    return graph.add("Div", powers, total)
