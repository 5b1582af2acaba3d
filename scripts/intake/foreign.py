"""A foreign network -> the same network with uint8 pixels in and scores out, like ours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from scripts.base.errors import UserError, reword_faults
from scripts.intake import plain
from scripts.intake.reading import Reading
from scripts.intake.signature import HOW, Signature

OLDEST_OPSET, USUAL_OPSET = 9, 13
# Before what is the user's own; a name of ours has none.
MARK = "own/"
# ITU-R 601-2 luma in whole numbers, as Pillow computes it; float32 holds them exactly.
LUMA = np.array([19595, 38470, 7471], np.float32) / 65536
DAMAGED = "the network is damaged"
SMALLEST = 1e-30  # whose logarithm exists
ROUNDED = ("QuantizeLinear", "DynamicQuantize", "QLinear", "ConvInteger", "MatMulInteger")


def adopt_graph(
    model: Any, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
) -> onnx.ModelProto:
    """What pictures need becomes the first nodes of its graph, what scores need the last.
    `one_by_one`: of a batch that cannot be opened, one place is used."""
    model = _recent(model)
    with reword_faults(DAMAGED, HOW):  # none of its names is to be one of ours
        model = onnx.compose.add_prefix(model, MARK, rename_functions=False)
    graph = _Graph(model.graph)
    _feed(graph, facts, how, one_by_one)
    scores = _answer(graph, facts, reading, one_by_one)
    graph.add("Identity", [scores], output="output")
    height, width = facts.size
    single = facts.classes == 1 and reading.gives != "multi-label"
    ends = (
        ("input", TensorProto.UINT8, ["batch", 3, height, width]),
        ("output", TensorProto.FLOAT, ["batch", 2 if single else facts.classes]),
    )
    pixels, answer = (helper.make_tensor_value_info(*each) for each in ends)
    graph.finish(pixels, answer)
    return model


def open_batch(model: Any, facts: Signature) -> Any:
    """With a batch of any size where it was fixed, if that is a matter of shapes alone; whether it
    still computes the same is for the caller to see."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    shapes = {
        name
        for node in found.graph.node
        if node.op_type == "Reshape" and len(node.input) > 1
        for name in node.input[1:2]
    }
    for tensor in found.graph.initializer:
        if tensor.name in shapes:
            tensor.CopyFrom(_any_batch(tensor, facts.batch))
    for node in found.graph.node:
        if node.op_type == "Constant" and node.output[0] in shapes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    attribute.t.CopyFrom(_any_batch(attribute.t, facts.batch))
    return found


def _any_batch(shape: Any, batch: int | None) -> Any:
    sizes = numpy_helper.to_array(shape).copy()
    if sizes.ndim == 1 and len(sizes) and sizes[0] == batch:
        sizes[0] = 0 if -1 in sizes[1:] else -1  # 0: as it is in the input
    return numpy_helper.from_array(sizes, shape.name)


def _recent(model: Any) -> Any:
    """With operators that take what ours give, and no functions of its own."""
    if model.functions:
        with reword_faults(DAMAGED, HOW):
            from onnx import inliner

            model = inliner.inline_local_functions(model)
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not versions:
        raise UserError("the network uses none of ONNX's operators", HOW)
    if min(versions) >= OLDEST_OPSET:
        return model
    with reword_faults(f"the network's opset {min(versions)} cannot be brought up to date", HOW):
        return onnx.version_converter.convert_version(model, USUAL_OPSET)


def has_eight_bits(nodes: Any) -> bool:
    """Whether what it computes is rounded to few levels."""
    return any(node.op_type.startswith(ROUNDED) for node in nodes)


class _Graph:
    """The user's graph, and what is put around it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._first: list[Any] = []
        self._last: list[Any] = []
        self._into = self._first
        self._count = 0

    @property
    def nodes(self) -> Any:
        return self._graph.node

    def append_outputs(self) -> None:
        self._into = self._last

    def add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Returns the name of its output."""
        self._count += 1
        output = output or f"bundle/{self._count}"
        self._into.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, values: NDArray[Any] | list[int]) -> str:
        self._count += 1
        name, array = f"bundle/{self._count}", np.asarray(values)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def numbers(self, values: Any, channels: bool = False) -> str:
        array = np.array(values, np.float32)
        return self.constant(array.reshape(1, -1, 1, 1) if channels else array)

    def rename(self, tensor: str, name: str) -> None:
        """An input of the user's graph, wherever it is read."""

        def in_nodes(nodes: Any) -> None:
            for node in nodes:
                for place, each in enumerate(node.input):
                    if each == tensor:
                        node.input[place] = name
                for attribute in node.attribute:
                    in_nodes(attribute.g.node)

        in_nodes(self._graph.node)

    def finish(self, pixels: Any, answer: Any) -> None:
        graph = self._graph
        nodes = [*self._first, *graph.node, *self._last]
        for field, values in ((graph.node, nodes), (graph.input, [pixels])):
            del field[:]
            field.extend(values)
        del graph.output[:]
        graph.output.append(answer)
        del graph.value_info[:]  # of another batch, perhaps


def _feed(graph: _Graph, facts: Signature, how: Mapping[str, Any], one_by_one: bool) -> None:
    """uint8 pixels -> what the network takes."""
    by_table = has_eight_bits(graph.nodes) and not facts.takes_levels
    as_they_are = (facts.kind == "UINT8" or by_table) and how["channels"] != "grey"
    # TensorRT has no way from floats to levels.
    pixels = "input" if as_they_are else graph.add("Cast", ["input"], to=TensorProto.FLOAT)
    if how["channels"] == "bgr":
        pixels = graph.add("Gather", [pixels, graph.constant(np.array([2, 1, 0]))], axis=1)
    elif how["channels"] == "grey":
        luma = graph.add("Conv", [pixels, graph.numbers(LUMA, channels=True)])
        pixels = graph.add("Floor", [graph.add("Add", [luma, graph.numbers(0.5)])])
    if by_table:
        pixels = _look_up(graph, pixels, facts, how)
    elif not facts.takes_levels:
        scale = how["scale"]
        mean, std = (np.array(how[name]) * scale for name in ("mean", "std"))
        if mean.any():
            pixels = graph.add("Sub", [pixels, graph.numbers(mean, channels=True)])
        if (std != 1).any():
            pixels = graph.add("Div", [pixels, graph.numbers(std, channels=True)])
    if facts.channels_last:
        pixels = graph.add("Transpose", [pixels], perm=[0, 2, 3, 1])
    if one_by_one:
        last = facts.channels_last
        shape = [*facts.size, facts.channels] if last else [facts.channels, *facts.size]
        pixels = graph.add("Reshape", [pixels, graph.constant(np.array([1, *shape]))])
        if facts.batch and facts.batch > 1:
            all_of_it = graph.constant(np.array([facts.batch, *shape]))
            pixels = graph.add("Expand", [pixels, all_of_it])
    if pixels == "input":
        graph.rename(MARK + facts.input, pixels)  # TensorRT's levels are inputs, and nothing else
    else:
        graph.add("Cast", [pixels], MARK + facts.input, to=getattr(TensorProto, facts.kind))


def _look_up(graph: _Graph, pixels: str, facts: Signature, how: Mapping[str, Any]) -> str:
    """To the last bit what the original is fed: in 8 bits, a number that is another in its last bit
    may be another level, and then all that follows."""
    kind = {"DOUBLE": "FLOAT64", "FLOAT": "FLOAT32"}.get(facts.kind, facts.kind).lower()
    levels = np.arange(256, dtype=np.uint8)[:, None]
    table = plain.normalise(levels, how).astype(kind)  # [level, channel]
    first = 256 * np.arange(table.shape[1], dtype=np.int32).reshape(1, -1, 1, 1)
    places = graph.add("Cast", [pixels], to=TensorProto.INT32)
    places = graph.add("Add", [places, graph.constant(first)])
    return graph.add("Gather", [graph.constant(table.ravel("F")), places])


def _answer(graph: _Graph, facts: Signature, reading: Reading, one_by_one: bool) -> str:
    """The network's output -> scores, or probabilities of labels that do not exclude each other."""
    graph.append_outputs()
    numbers = MARK + facts.output
    if facts.batch_last:
        numbers = graph.add("Transpose", [numbers], perm=[1, 0])
    if facts.alone:
        numbers = graph.add("Reshape", [numbers, graph.constant(np.array([-1, facts.classes]))])
    if one_by_one:
        numbers = graph.add("Gather", [numbers, graph.constant(np.array([0]))], axis=0)
    numbers = graph.add("Cast", [numbers], to=TensorProto.FLOAT)
    shape = graph.constant(np.array([-1, facts.classes]))
    numbers = graph.add("Reshape", [numbers, shape])
    if one_by_one:
        # Of as many rows as there are pictures, which is one, though the file need not say so.
        rows = graph.add("Shape", ["input"])
        rows = graph.add("Gather", [rows, graph.constant(np.array([0]))])
        rows = graph.add("Concat", [rows, graph.constant(np.array([1]))], axis=0)
        numbers = graph.add("Expand", [numbers, rows])
    if reading.gives == "multi-label":
        return numbers if reading.bounded else graph.add("Sigmoid", [numbers])
    if facts.classes == 1:
        # Of one class: that it is not, and that it is.
        by, plus = ([-1, 1], [1, 0]) if reading.bounded else ([0, 1], [0, 0])
        numbers = graph.add("Mul", [numbers, graph.numbers([by])])
        numbers = graph.add("Add", [numbers, graph.numbers([plus])])
    if not reading.bounded:
        return numbers
    # Logarithms of probabilities work as scores: softmax inverts them.
    return graph.add("Log", [graph.add("Max", [numbers, graph.numbers(SMALLEST)])])
