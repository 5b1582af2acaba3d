"""ONNX files that are broken or odd, each made of a sound one by something drawn at random, always
the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper

from benchmark.foreign import graphs

Random = np.random.Generator

SOUND: tuple[Callable[[], Any], ...] = (
    graphs.end_graph,
    graphs.zoo,
    graphs.of_one_pixel,
    graphs.with_a_branch,
    graphs.with_a_function,
    lambda: graphs.end_graph(graphs.SOFTMAX),
    lambda: graphs.quantise_graph(True),
    lambda: graphs.build_graph(graphs.NHWC),
    lambda: graphs.several("scores", label=True),
    lambda: graphs.build_graph((1, 3, 32, 32), answer=(1, 5), body=graphs.reshape_to_one),
    lambda: graphs.build_graph((1, 3, 32, 32), answer=(1, 5), body=graphs.with_a_token),
    graphs.make_loop,
    lambda: graphs.by_the_batch(5),
    lambda: graphs.end_graph(graphs.by_tanh),
    lambda: graphs.giving(graphs.best, graphs.vector, label=True),
    lambda: graphs.giving(graphs.keep_best_boxes),
)

NUMBERS = (0, 1, -1, 2, 7, 99, -99, 2**31, -(2**63), 2**63 - 1)
NAMES = ("", "x", "y", "t0", "w0", "input", "output", "nowhere", "own/x", "\udcff", "a" * 300)
OPERATORS = (
    "Conv",
    "Gemm",
    "Relu",
    "Softmax",
    "Reshape",
    "Loop",
    "Expand",
    "Range",
    "NonZero",
    "Wavelet",
    "",
)


def odd(number: int, path: Path) -> str:
    """Writes the file; returns what was done."""
    random = np.random.default_rng(number)
    model = SOUND[number % len(SOUND)]()
    done = []
    for _ in range(random.integers(1, 3)):
        change = CHANGES[random.integers(len(CHANGES))]
        change(model, random)
        done.append(change.__name__)
    content = bytearray(model.SerializeToString())
    if random.random() < 0.2:
        change_bytes = BYTES[random.integers(len(BYTES))]
        content = change_bytes(content, random)
        done.append(change_bytes.__name__)
    path.write_bytes(content)
    return f"{number}: {', '.join(done)}"


def one(values: Any, random: Random) -> Any:
    return values[int(random.integers(len(values)))]


# Of the graph.


def attribute(model: Any, random: Random) -> None:
    """Out of range."""
    node = one(model.graph.node, random)
    known = {
        "Conv": ("group", "strides", "pads", "dilations", "kernel_shape", "auto_pad"),
        "Flatten": ("axis",),
        "Gemm": ("transB", "transA", "alpha"),
        "Transpose": ("perm",),
        "ReduceMean": ("axes",),
        "Softmax": ("axis",),
        "Concat": ("axis",),
        "Cast": ("to",),
    }
    name = one(known.get(node.op_type, ("axis", "to", "perm")), random)
    for each in [each for each in node.attribute if each.name == name]:
        node.attribute.remove(each)
    some = [int(one(NUMBERS, random)) for _ in range(random.integers(1, 5))]
    value = one((some, some[0], "SAME_NOWHERE", float(some[0])), random)
    node.attribute.append(helper.make_attribute(name, value))


def attribute_of_no_type(model: Any, random: Random) -> None:
    node = one(model.graph.node, random)
    node.attribute.append(AttributeProto(name="axis", type=int(random.integers(0, 15))))


def input_of_a_node(model: Any, random: Random) -> None:
    node = one([node for node in model.graph.node if node.input], random)
    names = [*NAMES, *(each.name for each in model.graph.initializer)]
    node.input[int(random.integers(len(node.input)))] = _text(one(names, random))


def output_of_a_node(model: Any, random: Random) -> None:
    node = one(model.graph.node, random)
    node.output[0] = _text(one(NAMES, random))


def operator(model: Any, random: Random) -> None:
    one(model.graph.node, random).op_type = one(OPERATORS, random)


def domain(model: Any, random: Random) -> None:
    one(model.graph.node, random).domain = one(("acme", "com.microsoft", "ai.onnx.ml"), random)


def without_a_node(model: Any, random: Random) -> None:
    model.graph.node.remove(one(model.graph.node, random))


def nodes_in_another_order(model: Any, random: Random) -> None:
    nodes = list(model.graph.node)
    random.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def a_node_twice(model: Any, random: Random) -> None:
    model.graph.node.append(one(model.graph.node, random))


def dims_of_a_weight(model: Any, random: Random) -> None:
    tensor = one(model.graph.initializer, random)
    if tensor.dims:
        tensor.dims[int(random.integers(len(tensor.dims)))] = int(one(NUMBERS, random))


def kind_of_a_weight(model: Any, random: Random) -> None:
    one(model.graph.initializer, random).data_type = int(random.integers(0, 25))


def content_of_a_weight(model: Any, random: Random) -> None:
    tensor = one(model.graph.initializer, random)
    tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]


def a_weight_of_nothing(model: Any, random: Random) -> None:
    tensor = one(model.graph.initializer, random)
    values = one((np.nan, np.inf, -np.inf, 1e38, 0), random)
    if tensor.data_type == TensorProto.FLOAT:
        tensor.raw_data = np.full(list(tensor.dims), values, np.float32).tobytes()


def a_weight_elsewhere(model: Any, random: Random) -> None:
    tensor = one(model.graph.initializer, random)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    where = ("/etc/passwd", "../../secret", "nowhere.bin", "", "a\0b", "x" * 200)
    entries = {"location": one(where, random), "offset": one(("0", "-5", "many"), random)}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def without_a_weight(model: Any, random: Random) -> None:
    model.graph.initializer.remove(one(model.graph.initializer, random))


def dims_of_an_end(model: Any, random: Random) -> None:
    end = one([*model.graph.input, *model.graph.output], random)
    dims = end.type.tensor_type.shape.dim
    if len(dims):
        dims[int(random.integers(len(dims)))].dim_value = int(one(NUMBERS, random))


def kind_of_an_end(model: Any, random: Random) -> None:
    end = one([*model.graph.input, *model.graph.output], random)
    end.type.tensor_type.elem_type = int(random.integers(0, 30))


def end_of_another_type(model: Any, random: Random) -> None:
    end = one([*model.graph.input, *model.graph.output], random)
    end.type.ClearField("value")
    if random.random() < 0.5:
        end.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT


def name_of_an_end(model: Any, random: Random) -> None:
    one([*model.graph.input, *model.graph.output], random).name = _text(one(NAMES, random))


def without_an_end(model: Any, random: Random) -> None:
    ends = one((model.graph.input, model.graph.output), random)
    if ends:
        ends.remove(one(ends, random))


def an_end_twice(model: Any, random: Random) -> None:
    ends = one((model.graph.input, model.graph.output), random)
    if ends:
        ends.append(one(ends, random))


def opset(model: Any, random: Random) -> None:
    del model.opset_import[:]
    for _ in range(random.integers(0, 3)):
        version = int(one((*NUMBERS, 5, 8, 13, 26), random))
        model.opset_import.append(
            helper.make_opsetid(one(("", "ai.onnx", "acme"), random), version)
        )


def ir_version(model: Any, random: Random) -> None:
    model.ir_version = int(one((*NUMBERS, 3, 5, 30), random))


def metadata(model: Any, random: Random) -> None:
    value = one(("{", "[1, 2]", "None", "{1: 2}", "x" * 1000), random)
    helper.set_model_props(model, {"task": "classify", "names": value, "imgsz": value})


def _text(name: str) -> str:
    return name.encode("utf-8", "ignore").decode()


# Of the file.


def cut_off(content: bytearray, random: Random) -> bytearray:
    return content[: int(random.integers(len(content)))]


def with_other_bits(content: bytearray, random: Random) -> bytearray:
    for _ in range(random.integers(1, 20)):
        content[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
    return content


def with_zeros(content: bytearray, random: Random) -> bytearray:
    at = int(random.integers(len(content)))
    content[at : at + 64] = bytes(64)
    return content


CHANGES: tuple[Callable[[Any, Random], None], ...] = (
    *(attribute, attribute, attribute_of_no_type, input_of_a_node, output_of_a_node, operator),
    *(domain, without_a_node, nodes_in_another_order, a_node_twice, dims_of_a_weight),
    *(kind_of_a_weight, content_of_a_weight, a_weight_of_nothing, a_weight_elsewhere),
    *(without_a_weight, dims_of_an_end, kind_of_an_end, end_of_another_type, name_of_an_end),
    *(without_an_end, an_end_twice, opset, ir_version, metadata),
)
BYTES: tuple[Callable[[bytearray, Random], bytearray], ...] = (cut_off, with_other_bits, with_zeros)
