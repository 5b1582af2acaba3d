"""Networks as many tools write them, made by hand of a few nodes. Random weights: only the form
counts."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps

from benchmark.foreign.by_quantiser import EIGHT_BITS, by_onnxruntime
from benchmark.foreign.case import (
    Array,
    Case,
    Truth,
    middle,
    open_picture,
    same,
    sigmoid,
    softmax,
    two,
)
from bundle_serving.onnxruntime_engine import UNSOUND

SIDE, CLASSES = 32, 5
USUAL = round(SIDE * 8 / 7)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
F32, F16, F64, U8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.UINT8

End = Callable[["Graph", str], str]


@dataclass
class Graph:
    """Nodes and weights, in the order in which they are added."""

    opset: int = 17
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    random: Any = field(default_factory=lambda: np.random.default_rng(7))
    kind: Any = np.float32

    def add(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def weight(self, values: Any, name: str = "") -> str:
        name = name or f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def noise(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight((self.random.standard_normal(shape) * scale).astype(self.kind))

    def features(self, pixels: str = "x", channels: int = 3) -> str:
        conv = self.add("Conv", pixels, self.noise(6, channels, 3, 3), strides=[2, 2])
        return self.add("GlobalAveragePool", self.add("Relu", conv))

    def scores(self, flat: str, classes: int = CLASSES) -> str:
        weights = self.noise(6, classes, scale=2), self.noise(classes)
        return self.add("Gemm", flat, *weights)

    def body(self, pixels: str = "x", channels: int = 3, classes: int = CLASSES) -> str:
        """Pixels [batch, channels, height, width] -> scores."""
        return self.scores(self.add("Flatten", self.features(pixels, channels)), classes)

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any], ir: int = 8) -> Any:
        graph = helper.make_graph(self.nodes, "net", list(inputs), list(outputs), self.weights)
        domains = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=domains, ir_version=ir)


def value(name: str, dims: Sequence[Any], kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, list(dims))


PIXELS, ANSWER = value("x", ["n", 3, SIDE, SIDE]), value("y", ["n", CLASSES])


@dataclass(frozen=True)
class Wants:
    """What the network's maker fed it."""

    resize: int = USUAL
    height: int = SIDE
    width: int = SIDE
    channels: str = "RGB"
    scale: float = 255
    mean: float | Sequence[float] = MEAN
    std: float | Sequence[float] = STD
    kind: Any = np.float32
    last: bool = False  # channels
    batch: int = 1
    framed: Callable[[Image.Image], Image.Image] | None = None

    def __call__(self, file: bytes) -> Array:
        image = open_picture(file)
        if self.framed:
            image = self.framed(image)
        else:
            image = middle(image, self.resize, self.height, self.width)
        if self.channels == "L":
            image = image.convert("L")
        levels = np.asarray(image, np.float64).reshape(self.height, self.width, -1)
        levels = levels[..., ::-1] if self.channels == "BGR" else levels
        fed = (levels / self.scale - np.array(self.mean)) / np.array(self.std)
        fed = fed if self.last else fed.transpose(2, 0, 1)
        return np.repeat(fed[None].astype(self.kind), self.batch, axis=0)


RAW: dict[str, Any] = {"scale": 1, "mean": 0, "std": 1}


def right(
    folder: Path, feed: Callable[[bytes], Array], read: Callable[[Array], Array], output: int = 0
) -> Truth:
    """What ONNX Runtime says of the file, as its maker reads it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # As it is written: with more, sums of 8 bits saturate on CPUs without VNNI.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    providers = ["CPUExecutionProvider"]
    # Below that level too, one optimisation changes answers: see bundle_serving.
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers, disabled_optimizers=UNSOUND
    )

    def truth(file: bytes) -> Array:
        fed = feed(file)
        found = session.run(None, {session.get_inputs()[0].name: fed})[output]
        of_one = found.reshape(-1)[: found.size // len(fed)]
        return read(of_one.astype(np.float64))

    return truth


def make_case(
    name: str,
    build: Callable[[], Any],
    read: Callable[[Array], Array] = softmax,
    feed: Wants = Wants(),  # frozen
    output: int = 0,
    refused: str = "",
    beside: Mapping[str, Any] | None = None,
    save: Callable[[Any, Path], None] = onnx.save,
    **options: str,
) -> Case:
    def make(folder: Path) -> Truth:
        save(build(), folder / "model.onnx")
        for file, content in (beside or {}).items():
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
        return right(folder, feed, read, output) if not refused else _never

    return Case(name, "hand-made", make, options, refused)


def _never(file: bytes) -> Array:
    raise AssertionError("it is refused")


# Ends of a network.


def end_graph(*ends: End, classes: int = CLASSES) -> Any:
    graph = Graph()
    last = graph.body(classes=classes)
    for each in ends:
        last = each(graph, last)
    graph.add("Identity", last, out="y")
    return graph.model([PIXELS], [value("y", ["n", classes])])


def op(kind: str, *values: Any, **attributes: Any) -> End:
    def add(graph: Graph, last: str) -> str:
        constants = [graph.weight(np.float32(each)) for each in values]
        return graph.add(kind, last, *constants, **attributes)

    return add


def write_out_softmax(graph: Graph, last: str) -> str:
    """A softmax of single operators."""
    powers = graph.add("Exp", last)
    total = graph.add("ReduceSum", powers, graph.weight(np.array([1])), keepdims=1)
    return graph.add("Div", powers, total)


def sigmoid_written_out(graph: Graph, last: str) -> str:
    powers = graph.add("Exp", graph.add("Neg", last))
    return graph.add("Reciprocal", graph.add("Add", powers, graph.weight(np.float32(1))))


SOFTMAX, SIGMOID = op("Softmax", axis=1), op("Sigmoid")


def in_between(graph: Graph, last: str) -> str:
    """Scores that happen to lie between 0 and 1, whatever comes in."""
    normed = graph.add("LpNormalization", last, axis=1)
    weights = graph.weight(np.eye(CLASSES, dtype=np.float32) * 0.4)
    return graph.add("Gemm", normed, weights, graph.weight(np.full(CLASSES, 0.5, np.float32)))


def normalise_scores(graph: Graph, last: str) -> str:
    """Scores divided by their length."""
    positive = graph.add("Relu", last)
    length = graph.add("ReduceL2", positive, axes=[1], keepdims=1)
    longer = graph.add("Mul", length, graph.weight(np.float32(1.1)))
    return graph.add("Div", positive, graph.add("Add", longer, graph.weight(np.float32(1e-6))))


def in_levels(graph: Graph, last: str) -> str:
    """Scores of a part of the 256 levels."""
    cut = graph.add("Clip", last, graph.weight(np.float32(-9)), graph.weight(np.float32(9)))
    moved = graph.add("Add", graph.add("Mul", cut, graph.weight(np.float32(10))),
                      graph.weight(np.float32(100)))  # fmt: skip
    levels = graph.add("Cast", graph.add("Cast", moved, to=U8), to=F32)
    return graph.add("Div", levels, graph.weight(np.float32(255)))


def by_tanh(graph: Graph, last: str) -> str:
    half = graph.weight(np.float32(0.5))
    curved = graph.add("Tanh", graph.add("Mul", last, half))
    return graph.add("Add", graph.add("Mul", curved, half), half)


def ends() -> Iterator[Case]:
    made: tuple[Any, ...] = (
        ("scores", (), CLASSES, softmax, {}),
        ("a softmax at the end", (SOFTMAX,), CLASSES, same, {}),
        ("softmax, then a clamp", (SOFTMAX, op("Clip", 1e-4, 1 - 1e-4)), CLASSES, same, {}),
        ("a softmax of single operators", (write_out_softmax,), CLASSES, same, {}),
        ("a softmax, then a cast and back", (SOFTMAX, op("Cast", to=F64), op("Cast", to=F32)),
         CLASSES, same, {}),
        ("logarithms of probabilities", (op("LogSoftmax", axis=1),), CLASSES, np.exp, {}),
        ("independent labels", (SIGMOID,), CLASSES, same, {}),
        ("a sigmoid of single operators", (sigmoid_written_out,), CLASSES, same, {}),
        ("scores of independent labels", (), CLASSES, sigmoid, {"OUTPUT": "multi-label"}),
        ("a sigmoid by its tanh", (by_tanh,), CLASSES, same, {}),
        ("one label, a sigmoid", (SIGMOID,), 1, two, {}),
        ("one label, a score", (), 1, lambda z: two(sigmoid(z)), {}),
        ("two scores", (), 2, softmax, {}),
        ("scores between 0 and 1, named", (in_between,), CLASSES, softmax, {"OUTPUT": "scores"}),
    )  # fmt: skip
    for name, graph, classes, read, options in made:
        yield make_case(name, partial(end_graph, *graph, classes=classes), read, **options)
    refused = (
        ("a softmax over one class", (SOFTMAX,), 1, "whatever the picture"),
        ("percentages", (SOFTMAX, op("Mul", 100)), CLASSES, "sum to 100"),
        ("scores between 0 and 1", (in_between,), CLASSES, "scores or probabilities?"),
        (
            "scores divided by their length",
            (normalise_scores,),
            CLASSES,
            "scores or probabilities?",
        ),
        ("scores in levels", (in_levels,), CLASSES, "scores or probabilities?"),
        ("a hyperbolic tangent's", (op("Relu"), op("Tanh")), CLASSES, "scores or probabilities?"),
        ("logarithms of independent labels", (SIGMOID, op("Log")), CLASSES, "no number above 0"),
        ("NaN", (op("Mul", np.nan),), CLASSES, "gives NaN or infinity"),
    )
    for name, graph, classes, why in refused:
        yield make_case(name, partial(end_graph, *graph, classes=classes), refused=why)


# Ways to take pictures.

NCHW, NHWC = ("n", 3, SIDE, SIDE), ("n", SIDE, SIDE, 3)


def build_graph(
    dims: Sequence[Any],
    channels: int = 3,
    kind: int = F32,
    answer: Sequence[Any] = ("n", CLASSES),
    ends: Sequence[End] = (),
    body: Callable[[Graph, str], str] | None = None,
    weights: Any = np.float32,
    opset: int = 17,
    ir: int = 8,
) -> Any:
    """Pixels of these dimensions -> scores."""
    graph, pixels = Graph(opset=opset, kind=weights), "x"
    last = dims[1] != channels
    if last:
        pixels = graph.add("Transpose", pixels, perm=[0, 3, 1, 2])
    inside = {np.float16: F16, np.float32: F32, np.float64: F64}[weights]
    if kind != inside:
        pixels = graph.add("Cast", pixels, to=inside)
    found = body(graph, pixels) if body else graph.body(pixels, channels)
    for each in ends:
        found = each(graph, found)
    graph.add("Identity", found, out="y")
    return graph.model([value("x", dims, kind)], [value("y", answer, inside)], ir)


def reshape_to_one(graph: Graph, pixels: str) -> str:
    """To a batch of one, as exporters write it down."""
    shape = graph.weight(np.array([1, -1]))
    return graph.scores(graph.add("Reshape", graph.features(pixels), shape))


def with_a_token(graph: Graph, pixels: str) -> str:
    """A class token of a batch of one, joined with the features."""
    shape = graph.weight(np.array([1, 6, 1]))
    tokens = graph.add("Reshape", graph.features(pixels), shape)
    joined = graph.add("Concat", tokens, graph.noise(1, 6, 1), axis=2)
    flat = graph.add("ReduceMean", joined, axes=[2], keepdims=0)
    return graph.scores(flat)


def pad_then_pool(graph: Graph, pixels: str) -> str:
    """The maximum of a border of zeros and of negative values too, as in BiT."""
    zeros = graph.weight(np.array([0, 0, 2, 2, 0, 0, 2, 2]))
    padded = graph.add("Pad", graph.add("Conv", pixels, graph.noise(6, 3, 3, 3)), zeros)
    best = graph.add("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2])
    return graph.scores(graph.add("Flatten", graph.add("GlobalAveragePool", best)))


def of_neighbours(graph: Graph, pixels: str) -> str:
    """Each picture's answer depends on the others of its batch."""
    scores = graph.body(pixels)
    mean = graph.add("ReduceMean", scores, axes=[0], keepdims=1)
    return graph.add("Sub", scores, graph.add("Mul", mean, graph.weight(np.float32(0.5))))


def double_ends() -> Any:
    graph = Graph()
    scores = graph.body(graph.add("Cast", "x", to=F32))
    graph.add("Cast", scores, out="y", to=F64)
    return graph.model([value("x", NCHW, F64)], [value("y", ["n", CLASSES], F64)])


def squash_to(height: int, width: int) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.resize((width, height), Image.Resampling.BILINEAR)


def letterbox_to(side: int, level: int) -> Callable[[Image.Image], Image.Image]:
    """With the wider border below or at the right, as Ultralytics and timm have it."""

    def frame(image: Image.Image) -> Image.Image:
        inside = ImageOps.contain(image, (side, side), Image.Resampling.BILINEAR)
        whole = Image.new("RGB", (side, side), (level,) * 3)
        whole.paste(inside, ((side - inside.width) // 2, (side - inside.height) // 2))
        return whole

    return frame


def inputs() -> Iterator[Case]:
    plain: dict[str, Any] = {"scale": 255, "mean": 0, "std": 1}
    grey = Wants(channels="L", mean=(0.13,), std=(0.31,))
    yield make_case(
        "batch fixed at 1", lambda: build_graph((1, 3, SIDE, SIDE), answer=(1, CLASSES))
    )
    yield make_case(
        "batch fixed at 1, written into a Reshape",
        lambda: build_graph((1, 3, SIDE, SIDE), answer=(1, CLASSES), body=reshape_to_one),
    )
    yield make_case(
        "batch fixed at 1, with a class token",
        lambda: build_graph((1, 3, SIDE, SIDE), answer=(1, CLASSES), body=with_a_token),
    )
    yield make_case(
        "batch fixed at 8",
        lambda: build_graph((8, 3, SIDE, SIDE), answer=(8, CLASSES)),
        feed=Wants(batch=8),
    )
    yield make_case(
        "any batch, but for one it is made", lambda: build_graph(NCHW, body=with_a_token)
    )
    yield make_case(
        "answers that depend on neighbours", lambda: build_graph(NCHW, body=of_neighbours)
    )
    yield make_case(
        "zeros around what a maximum is taken of", lambda: build_graph(NCHW, body=pad_then_pool)
    )
    yield make_case("channels last", lambda: build_graph(NHWC), feed=Wants(last=True))
    yield make_case(
        "channels last, batch fixed at 1",
        lambda: build_graph((1, SIDE, SIDE, 3), answer=(1, CLASSES), body=reshape_to_one),
        feed=Wants(last=True),
    )
    yield make_case(
        "BGR", lambda: build_graph(NCHW), feed=Wants(channels="BGR"), PICTURES="channels: bgr"
    )
    yield make_case(
        "grey",
        lambda: build_graph(("n", 1, SIDE, SIDE), channels=1),
        feed=grey,
        PICTURES="mean: [0.13], std: [0.31]",
    )
    yield make_case(
        "grey, no options",
        lambda: build_graph(("n", 1, SIDE, SIDE), channels=1),
        feed=Wants(channels="L", **plain),
    )
    yield make_case(
        "levels (uint8)", lambda: build_graph(NCHW, kind=U8), feed=Wants(kind=np.uint8, **RAW)
    )
    yield make_case(
        "levels (uint8), channels last",
        lambda: build_graph(NHWC, kind=U8),
        feed=Wants(kind=np.uint8, last=True, **RAW),
    )
    yield make_case(
        "levels (int32)",
        lambda: build_graph(NCHW, kind=TensorProto.INT32),
        feed=Wants(kind=np.int32, **RAW),
    )
    yield make_case(
        "half precision",
        lambda: build_graph(NCHW, kind=F16, weights=np.float16),
        feed=Wants(kind=np.float16),
    )
    yield make_case(
        "half precision, a softmax",
        lambda: build_graph(NCHW, kind=F16, weights=np.float16, ends=[SOFTMAX]),
        same,
        feed=Wants(kind=np.float16),
    )
    yield make_case(
        "double precision, which ONNX Runtime lacks",
        lambda: build_graph(NCHW, kind=F64, weights=np.float64),
        refused="cannot be run",
    )
    yield make_case("double precision at the ends", double_ends, feed=Wants(kind=np.float64))
    yield make_case(
        "levels as floats",
        lambda: build_graph(NCHW, ends=[op("Mul", 0.01)]),
        feed=Wants(**RAW),
        PICTURES="scale: 1, mean: [0, 0, 0], std: [1, 1, 1]",
    )
    yield make_case(
        "mean of Caffe, BGR",
        lambda: build_graph(NCHW, ends=[op("Mul", 0.02)]),
        feed=Wants(channels="BGR", scale=1, mean=(104, 117, 123), std=(1, 1, 1)),
        PICTURES="scale: 1, mean: [104, 117, 123], std: [1, 1, 1], channels: bgr",
    )
    yield make_case("any height and width", lambda: build_graph(("n", 3, "h", "w")), SIZE=str(SIDE))
    yield make_case(
        "any height and width, not square",
        lambda: build_graph(("n", 3, "h", "w")),
        feed=Wants(height=24, width=48, framed=squash_to(24, 48)),
        SIZE="24x48",
        PICTURES="fit: squash",
    )
    yield make_case(
        "squashed",
        lambda: build_graph(NCHW),
        feed=Wants(framed=squash_to(SIDE, SIDE)),
        PICTURES="fit: squash",
    )
    yield make_case(
        "framed (letterbox)",
        lambda: build_graph(NCHW),
        feed=Wants(framed=letterbox_to(SIDE, 114)),
        PICTURES="fit: letterbox, pad: 114",
    )
    yield make_case(
        "no margin", lambda: build_graph(NCHW), feed=Wants(resize=SIDE), PICTURES=f"resize: {SIDE}"
    )
    yield make_case(
        "height other than width",
        lambda: build_graph(("n", 3, 24, 40)),
        feed=Wants(height=24, width=40, framed=squash_to(24, 40)),
        PICTURES="fit: squash",
    )
    for name, dims, why in (
        ("any height and width, no options", ("n", 3, "h", "w"), "any height and width"),
        ("four channels", ("n", 4, SIDE, SIDE), "neither colour"),
        ("rows of numbers", ("n", 64), "not pictures"),
        ("video", ("n", 3, 8, SIDE, SIDE), "not pictures"),
    ):
        yield make_case(name, partial(_odd, dims), refused=why)


def _odd(dims: Sequence[Any]) -> Any:
    graph = Graph()
    graph.add("Identity", graph.body(), out="y")
    return graph.model([value("x", dims)], [ANSWER])


# Files.


def rename_tensors(names: Mapping[str, str]) -> Any:
    model = end_graph()
    for node in model.graph.node:
        for field_ in (node.input, node.output):
            field_[:] = [names.get(name, name) for name in field_]
    for each in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        each.name = names.get(each.name, each.name)
    return model


def zoo(opset: int = 9, ir: int = 3) -> Any:
    """As the ONNX zoo's files: the weights are among the inputs."""
    graph = Graph(opset=opset)
    graph.add("Identity", graph.body(), out="y")
    known = [value(each.name, each.dims) for each in graph.weights]
    return graph.model([PIXELS, *known], [ANSWER], ir)


def spread(graph: Graph) -> str:
    """Scores as a picture of one pixel."""
    weights = graph.noise(CLASSES, 6, 1, 1, scale=2)
    return graph.add("Conv", graph.features(), weights)


def of_one_pixel() -> Any:
    graph = Graph()
    graph.add("Identity", spread(graph), out="y")
    return graph.model([PIXELS], [value("y", ["n", CLASSES, 1, 1])])


def batch_last(weights_first: bool) -> Any:
    """A column for each picture: turned around, or computed so."""
    graph = Graph()
    if weights_first:
        flat = graph.add("Flatten", graph.features())
        graph.add("Gemm", graph.noise(CLASSES, 6, scale=2), flat, transB=1, out="y")
    else:
        graph.add("Transpose", graph.body(), perm=[1, 0], out="y")
    return graph.model([PIXELS], [value("y", [CLASSES, "n"])])


def several(*names: str, label: bool = False) -> Any:
    graph = Graph()
    scores = graph.body()
    outputs = []
    for number, name in enumerate(names):
        graph.add("Mul", scores, graph.weight(np.float32(1 + number)), out=name)
        outputs.append(value(name, ["n", CLASSES]))
    if label:
        graph.add("ArgMax", scores, axis=1, keepdims=0, out="label")
        outputs.insert(0, value("label", ["n"], TensorProto.INT64))
    return graph.model([PIXELS], outputs)


def quantise_graph(symmetric: bool) -> Any:
    """QDQ, as several tools write it."""
    kind = np.int8 if symmetric else np.uint8
    graph = Graph()

    def round_tensor(tensor: str, step: float, zero: int) -> str:
        how = graph.weight(np.float32(step)), graph.weight(kind(zero))
        return graph.add("DequantizeLinear", graph.add("QuantizeLinear", tensor, *how), *how)

    def weights(*shape: int) -> str:
        values = graph.random.integers(-120, 120, shape).astype(np.int8)
        how = graph.weight(np.float32(0.006)), graph.weight(np.int8(0))
        return graph.add("DequantizeLinear", graph.weight(values), *how)

    zero = 0 if symmetric else 128
    pixels = round_tensor("x", 0.04, zero)
    conv = graph.add("Relu", graph.add("Conv", pixels, weights(6, 3, 3, 3), strides=[2, 2]))
    pooled = graph.add("GlobalAveragePool", round_tensor(conv, 0.05, 0))
    flat = round_tensor(graph.add("Flatten", pooled), 0.05, 0)
    graph.add("Gemm", flat, weights(6, CLASSES), out="y")
    return graph.model([PIXELS], [ANSWER])


def with_a_branch() -> Any:
    """Control flow, whose branches use names from outside."""
    graph = Graph()
    scores = graph.body()
    sign = graph.add(
        "Greater", graph.add("ReduceSum", "x", keepdims=0), graph.weight(np.float32(0))
    )

    def branch(factor: float) -> Any:
        node = helper.make_node("Mul", [scores, "factor"], ["input"])
        weights = [numpy_helper.from_array(np.float32(factor), "factor")]
        return helper.make_graph([node], "branch", [], [value("input", ["n", CLASSES])], weights)

    graph.add("If", sign, out="y", then_branch=branch(1), else_branch=branch(2))
    return graph.model([PIXELS], [ANSWER])


def by_the_batch(least: int) -> Any:
    """A branch that is taken by so many pictures at once."""
    model = with_a_branch()
    greater = next(node for node in model.graph.node if node.op_type == "Greater")
    known = [
        helper.make_node("Shape", ["x"], ["many"], end=1),
        helper.make_node("Cast", ["many"], ["count"], to=F32),
        helper.make_node("ReduceSum", ["count"], ["counted"], keepdims=0),
    ]
    at = list(model.graph.node).index(greater)
    nodes = list(model.graph.node)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(least - 0.5), "least"))
    greater.input[:] = ["counted", "least"]
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:at], *known, greater, *nodes[at + 1 :]])
    return model


def make_loop() -> Any:
    """Scores that a loop adds up."""
    graph = Graph()
    scores = graph.body()
    once = [
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node("Add", ["sum", scores], ["added"]),
    ]
    ends = [value("goes", [], TensorProto.BOOL), value("added", ["n", CLASSES])]
    taken = [
        value("turn", [], TensorProto.INT64),
        value("going", [], TensorProto.BOOL),
        value("sum", ["n", CLASSES]),
    ]
    body = helper.make_graph(once, "body", taken, ends)
    turns, yes = graph.weight(np.int64(3)), graph.weight(np.bool_(True))
    graph.add("Loop", turns, yes, scores, out="y", body=body)
    return graph.model([PIXELS], [ANSWER])


# What gives no number for each class.


def best(graph: Graph, scores: str) -> list[Any]:
    """The best three, and which they are."""
    three = graph.weight(np.array([3]))
    graph.nodes.append(helper.make_node("TopK", [scores, three], ["best", "which"], axis=1))
    graph.add("Softmax", "best", axis=1, out="likely")
    return [value("likely", ["n", 3]), value("which", ["n", 3], TensorProto.INT64)]


def largest(graph: Graph, scores: str) -> list[Any]:
    graph.add("ReduceMax", scores, axes=[1], keepdims=1, out="confidence")
    return [value("confidence", ["n", 1])]


def vector(graph: Graph, scores: str) -> list[Any]:
    graph.add("MatMul", scores, graph.noise(CLASSES, 16), out="vector")
    return [value("vector", ["n", 16])]


def unit_vector(graph: Graph, scores: str) -> list[Any]:
    vector(graph, scores)
    graph.add("LpNormalization", "vector", axis=1, out="unit")
    return [value("unit", ["n", 16])]


def places(graph: Graph, scores: str) -> list[Any]:
    """Boxes of as many places, and a score of each."""
    shape = graph.weight(np.array([-1, CLASSES, 4]))
    corners = graph.add("MatMul", scores, graph.noise(CLASSES, 4 * CLASSES))
    graph.add("Reshape", corners, shape, out="boxes")
    graph.add("Sigmoid", scores, out="found")
    return [value("boxes", ["n", CLASSES, 4]), value("found", ["n", CLASSES])]


def keep_best_boxes(graph: Graph, scores: str) -> list[Any]:
    """What a suppression of boxes leaves, gathered."""
    places(graph, scores)
    of_classes = graph.add("Unsqueeze", "found", graph.weight(np.array([1])))
    limits = graph.weight(np.array([CLASSES])), graph.weight(np.array([0.5], np.float32))
    indices = graph.add("NonMaxSuppression", "boxes", of_classes, *limits)
    of_boxes = graph.add("Gather", indices, graph.weight(np.array([2])), axis=1)
    graph.add("Gather", "found", graph.add("Squeeze", of_boxes, graph.weight(np.array([1]))),
              axis=1, out="left")  # fmt: skip
    return [value("left", ["n", CLASSES])]


Giving = Callable[[Graph, str], list[Any]]


def giving(*parts: Giving, label: bool = False) -> Any:
    graph = Graph()
    scores = graph.body()
    outputs = [each for part in parts for each in part(graph, scores)]
    if label:
        graph.add("ArgMax", scores, axis=1, keepdims=0, out="label")
        outputs.append(value("label", ["n"], TensorProto.INT64))
    return graph.model([PIXELS], outputs)


def of_one_picture(*shape: int) -> Any:
    """Its classes, without the picture before them."""
    graph = Graph()
    graph.add("Reshape", graph.body(), graph.weight(np.array(shape)), out="y")
    return graph.model([value("x", (1, 3, SIDE, SIDE))], [value("y", shape)])


def no_classes() -> Iterator[Case]:
    for name, parts, label, why in (
        ("the best three", (best,), False, "numbers of the best classes"),
        ("a maximum beside a label", (largest,), True, "is each number of confidence one class's?"),
        ("an embedding beside a label", (vector,), True, "is not the largest of its vector"),
        ("an embedding of length 1", (unit_vector,), False, "of length 1 together"),
        ("a detector's scores beside its boxes", (places,), False, "is each number of found one"),
        (
            "what a detector keeps",
            (keep_best_boxes,),
            False,
            "numbers of the best classes, or of boxes",
        ),
    ):
        yield make_case(name, partial(giving, *parts, label=label), refused=why)


def with_a_function() -> Any:
    """As PyTorch's exporter keeps modules."""
    graph = Graph()
    scores = graph.body()
    graph.nodes.append(helper.make_node("Twice", [scores], ["y"], domain="acme"))
    model = graph.model([PIXELS], [ANSWER])
    body = [helper.make_node("Add", ["input", "input"], ["output"])]
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function("acme", "Twice", ["input"], ["output"], body, opsets)
    )
    model.opset_import.append(helper.make_opsetid("acme", 1))
    return model


def unknown(domain: str) -> Any:
    model = end_graph()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Wavelet", domain
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def without_dims() -> Any:
    model = end_graph()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def at_random() -> Any:
    graph = Graph()
    scores = graph.body()
    graph.add("Add", scores, graph.add("RandomNormalLike", scores, scale=3.0), out="y")
    return graph.model([PIXELS], [ANSWER])


def two_inputs() -> Any:
    graph = Graph()
    graph.add("Mul", graph.body(), "weight", out="y")
    return graph.model([PIXELS, value("weight", ["n", 1])], [ANSWER])


def in_two_files(model: Any, path: Path) -> None:
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)


def with_metadata() -> Any:
    """As Ultralytics exports a classifier."""
    model = end_graph(SOFTMAX)
    names = {number: f"thing {number}" for number in range(CLASSES)}
    properties = {"task": "classify", "names": str(names), "imgsz": f"[{SIDE}, {SIDE}]"}
    helper.set_model_props(model, properties)
    return model


HUGGING_FACE = {
    "image_processor_type": "ViTImageProcessor",
    **{"do_normalize": True, "do_rescale": True, "do_resize": True},
    **{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    **{"resample": 2, "rescale_factor": 1 / 255, "size": {"height": SIDE, "width": SIDE}},
}
TIMM = {
    "architecture": "resnet10t",
    "pretrained_cfg": {
        **{"input_size": [3, SIDE, SIDE], "crop_pct": 0.8, "crop_mode": "center"},
        **{"interpolation": "bilinear", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
    },
}


def files() -> Iterator[Case]:
    for opset, ir in ((9, 3), (9, 4), (11, 6), (7, 3)):
        yield make_case(
            f"opset {opset}, IR {ir}, weights among the inputs", partial(zoo, opset, ir)
        )
    yield make_case("an output [batch, classes, 1, 1]", of_one_pixel)
    for first in (False, True):
        name = "an output [classes, batch]" + ", weights first" * first
        yield make_case(name, partial(batch_last, first))
    for shape in ((CLASSES,), (CLASSES, 1)):
        yield make_case(f"{list(shape)} for one picture", partial(of_one_picture, *shape))
    yield make_case("two outputs, one chosen", partial(several, "logits", "other"), OUTPUT="logits")
    yield make_case(
        "two outputs, no options", partial(several, "logits", "other"), refused="OUTPUT=logits"
    )
    yield make_case("a label and scores", partial(several, "scores", label=True), output=1)
    yield make_case("weights in another file", end_graph, save=in_two_files)
    yield make_case("8 bits (QDQ, signed)", partial(quantise_graph, True))
    yield make_case("8 bits (QDQ, unsigned)", partial(quantise_graph, False))
    for kind in ("u8s8", "s8s8", "s16s8"):
        save = partial(by_onnxruntime, kind=kind, feed=Wants())
        for precision in ("fp32", "auto"):
            name = f"ONNX Runtime's {kind}, {precision}"
            case = make_case(name, end_graph, save=save, PRECISION=precision)
            yield replace(case, bound=EIGHT_BITS)
    ours = {"x": "output", "y": "input", "t0": "bundle/1", "t1": "own/x", "w0": "batch"}
    yield make_case("names like ours", partial(rename_tensors, ours))
    yield make_case(
        "names like ours, the other way", partial(rename_tensors, {"x": "input", "y": "output"})
    )
    yield make_case("a branch", with_a_branch)
    for least in (2, 5):
        yield make_case(f"a branch by the batch, from {least} on", partial(by_the_batch, least))
    yield make_case("a loop", make_loop)
    yield make_case("a function of its own", with_a_function)
    yield make_case("an output without a shape", without_dims)
    yield make_case(
        "metadata of Ultralytics", with_metadata, same, Wants(resize=SIDE, mean=0, std=1)
    )
    half = Wants(mean=(0.5,) * 3, std=(0.5,) * 3, framed=squash_to(SIDE, SIDE))
    yield make_case(
        "preprocessor_config.json beside it",
        end_graph,
        feed=half,
        beside={"preprocessor_config.json": HUGGING_FACE},
    )
    yield make_case(
        "timm's config.json beside it",
        end_graph,
        feed=Wants(resize=40, mean=(0.5,) * 3, std=(0.25,) * 3),
        beside={"config.json": TIMM},
    )
    yield make_case(
        "PICTURES names a file",
        end_graph,
        feed=half,
        beside={"how.json": HUGGING_FACE},
        PICTURES="{folder}/how.json",
    )
    for name, build, why in (
        ("an operator nobody knows", partial(unknown, ""), "Wavelet"),
        ("an operator of another domain", partial(unknown, "acme"), "Wavelet"),
        ("answers by chance", at_random, "disagrees with the original"),
        ("two inputs", two_inputs, "has 2 inputs"),
    ):
        yield make_case(name, build, refused=why)


CASES = (*ends(), *inputs(), *files(), *no_classes())
