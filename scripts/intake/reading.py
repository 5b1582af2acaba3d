"""How a network's output is to be read: judged by its numbers, and by how its graph ends, which may
keep them between two ends, or not have one of each class. Pure functions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError

# After half precision, or a clamp against the logarithm of 0, ends are off by so much.
SLACK = 0.01
ROUNDED = 0.5 / 127  # and each number in eight bits, whose sum adds that up
GIVES = ("scores", "probabilities", "multi-label")
# Of a vector that was normalised.
LENGTH = 0.001
CHOOSE = f"say what it is: OUTPUT={'|'.join(GIVES)} (of a new version: gives, in the recipe)"


@dataclass(frozen=True)
class Reading:
    gives: str  # one of GIVES
    bounded: bool  # between 0 and 1 already
    why: str

    @property
    def answers(self) -> str:
        return "multi-label" if self.gives == "multi-label" else "single-label"


def judge_scores(
    name: str, seen: NDArray[Any], wild: NDArray[Any], graph: Any, output: str, declared: str
) -> Reading:
    """From what it gives for pictures, and for other inputs, and from the graph before its output.
    `declared` is what the user says."""
    if not np.isfinite(seen).all():
        raise UserError(
            f"{name} gives NaN or infinity for a picture", "check its weights and PICTURES="
        )
    every, one_class = np.concatenate([seen, wild]), seen.shape[1] == 1
    bounded = bool(every.min() >= -SLACK and every.max() <= 1 + SLACK)
    ends = f"from {seen.min():.3g} to {seen.max():.3g}"
    sums = every.sum(axis=1)
    if one_class and bounded and np.ptp(every) == 0:
        raise UserError(
            f"{name} has one class, and gives {seen[0, 0]:g} whatever the picture",
            "a softmax over one class says nothing; export it with a sigmoid, or without",
        )
    if declared:
        if declared == "probabilities" and not bounded:
            raise UserError(f"{name} gives numbers {ends}, not probabilities", "OUTPUT=scores")
        return Reading(declared, bounded and declared != "scores", "as OUTPUT says")
    if bounded and not one_class:
        off = np.abs(sums - 1).max()
        if off <= SLACK:
            return Reading("probabilities", True, "each picture's numbers sum to 1")
        if off <= seen.shape[1] * ROUNDED and ends_in_softmax(graph, output):
            return Reading("probabilities", True, "a softmax's, rounded to eight bits")
    if bounded:
        # A sigmoid keeps to it whatever the input; scores might by chance.
        if not is_bounded(graph, output):
            raise _explain_undecided(name, "between 0 and 1, though nothing in it keeps them there")
        if one_class:
            return Reading("probabilities", True, "its one number is between 0 and 1")
        return Reading("multi-label", True, "all between 0 and 1, and not summing to 1")
    if not one_class and np.abs(np.linalg.norm(every, axis=1) - 1).max() <= LENGTH:
        raise _explain_undecided(name, "of length 1 together, as a vector's")
    of_pictures = seen.sum(axis=1)
    if not one_class and seen.min() >= 0 and np.ptp(of_pictures) <= SLACK * of_pictures.max():
        raise _explain_undecided(name, f"which sum to {of_pictures.mean():.3g} for each picture")
    # Logarithms of probabilities that sum to 1 are scores.
    if is_logarithm(graph, output) and np.abs(np.exp(seen).sum(axis=1) - 1).max() > SLACK:
        raise UserError(
            f"{name} gives no number above 0: scores, or logarithms of independent probabilities?",
            "export it without the logarithm at its end; or say OUTPUT=scores: the order of its "
            "labels is right then, and their probabilities are not",
        )
    return Reading("scores", False, ends)


def _explain_undecided(name: str, what: str) -> UserError:
    return UserError(f"{name} gives numbers {what}: scores or probabilities?", CHOOSE)


Ends = tuple[float, float]
ANY: Ends = (-math.inf, math.inf)
# Of these many operators before an output it is known what their ends are.
DEEPEST = 50

GIVEN: dict[str, Ends] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearSoftmax"), (0.0, 1.0)),
    "Softplus": (0.0, math.inf),
    **dict.fromkeys(("Tanh", "Softsign", "Erf", "Sin", "Cos"), (-1.0, 1.0)),
}
# They give the numbers of their first input.
PASSING_ON = {
    *("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout"),
    *("DequantizeLinear", "QuantizeLinear"),
}
# Their ends are those of their first input.
KEEPING = PASSING_ON | {
    *("Slice", "Gather", "Round", "Expand"),
    *("ReduceMean", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool"),
}
BETWEEN: dict[str, Callable[[float, float], float]] = {
    "Add": lambda one, other: one + other,
    "Sub": lambda one, other: one - other,
    "Mul": lambda one, other: one * other,
    "Div": lambda one, other: one / other,
}
PICKING, FINDING = (
    ("TopK",),
    ("NonMaxSuppression", "MultiClassNonMaxSuppression", "DetectionOutput"),
)
# After these a number is still of the same class, or of the same place in a list.
PASSING = KEEPING | set(BETWEEN) | {"GatherElements", "GatherND", "Concat", "Where"}
PASSING |= {"Softmax", "Sigmoid", "LogSoftmax", "Clip", "Relu", "Max", "Min", "Exp", "Log", "Neg"}
BRANCHING = ("If", "Loop", "Scan", "TensorIterator")


def is_bounded(graph: Any, output: str) -> bool:
    """Whether its operators give it numbers from 0 to 1, whatever comes in."""
    low, high = _Graph(graph).ends(output, 0)
    return abs(low) <= SLACK and abs(high - 1) <= SLACK


def ends_in_softmax(graph: Any, output: str) -> bool:
    """Whether its numbers are a softmax's, whatever their shape and their type."""
    made = _makers(graph)
    node = made.get(output)
    while node is not None and node.op_type in PASSING_ON:
        node = made.get(node.input[0])
    return node is not None and node.op_type in ("Softmax", "QLinearSoftmax")


def is_logarithm(graph: Any, output: str) -> bool:
    """Whether its operators give it numbers up to 0, as those of probabilities."""
    low, high = _Graph(graph).ends(output, 0)
    return low == -math.inf and abs(high) <= SLACK


def is_picked(graph: Any, output: str) -> bool:
    """Whether its numbers are those of the best classes, or of boxes: they are of another class in
    each picture."""
    made = _makers(graph)
    seen: set[str] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        node = made.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in PICKING:
            return True
        if node.op_type in PASSING:
            waiting += node.input
    return any(node.op_type in FINDING for node in graph.node)


def has_branches(graph: Any) -> bool:
    return any(node.op_type in BRANCHING for node in graph.node)


def _makers(graph: Any) -> dict[str, Any]:
    return {name: node for node in graph.node for name in node.output}


class _Graph:
    def __init__(self, graph: Any) -> None:
        self._made = _makers(graph)
        self._weights = {each.name: each for each in graph.initializer}
        self._known: dict[str, Ends] = {}

    def ends(self, name: str, depth: int) -> Ends:
        if name not in self._known:
            found = self._ends(name, depth + 1) if depth < DEEPEST else ANY
            self._known[name] = ANY if any(map(math.isnan, found)) else found
        return self._known[name]

    def _ends(self, name: str, depth: int) -> Ends:
        if name in self._weights:
            return _of_values(self._weights[name])
        node = self._made.get(name)
        if node is None:
            return ANY
        kind = node.op_type
        if kind in GIVEN:
            return GIVEN[kind]
        if kind == "Constant":
            return _of_values(_attribute(node, "value"))
        if kind in KEEPING:
            return self.ends(node.input[0], depth)
        if kind == "Clip":
            return self._read_clip(node, depth)
        if kind in BETWEEN or kind in ("Max", "Min", "Concat", "Where"):
            taken = node.input[1:] if kind == "Where" else node.input
            return _combine_ends(kind, [self.ends(each, depth) for each in taken])
        if kind in ("Relu", "Exp", "Neg", "Reciprocal", "Log"):
            return _of_one(kind, *self.ends(node.input[0], depth))
        return ANY

    def _read_clip(self, node: Any, depth: int) -> Ends:
        low, high = self.ends(node.input[0], depth)
        asked = (_attribute(node, "min"), _attribute(node, "max"))
        least, most = (end if each is None else each for each, end in zip(asked, ANY, strict=True))
        if len(node.input) > 1 and node.input[1]:
            least, _ = self.ends(node.input[1], depth)
        if len(node.input) > 2 and node.input[2]:
            _, most = self.ends(node.input[2], depth)
        return min(max(low, least), most), max(min(high, most), least)


def _attribute(node: Any, name: str) -> Any:
    from onnx import helper

    found = (helper.get_attribute_value(each) for each in node.attribute if each.name == name)
    return next(found, None)


def _of_values(tensor: Any) -> Ends:
    from onnx import numpy_helper

    try:
        values = numpy_helper.to_array(tensor).astype(np.float64)
    except Exception:  # damaged, or not of numbers
        return ANY
    return (float(values.min()), float(values.max())) if values.size else ANY


def _of_one(kind: str, low: float, high: float) -> Ends:
    if kind == "Relu":
        return max(low, 0.0), max(high, 0.0)
    if kind == "Neg":
        return -high, -low
    if kind == "Exp":
        with np.errstate(over="ignore"):
            return float(np.exp(low)), float(np.exp(high))
    if kind == "Log":
        return (math.log(low) if low > 0 else -math.inf), (math.log(high) if high > 0 else math.inf)
    return (1 / high, 1 / low) if low > 0 else ANY


def _combine_ends(kind: str, parts: list[Ends]) -> Ends:
    if kind in BETWEEN:
        (low, high), (least, most) = parts
        if kind == "Div" and least <= 0:
            return ANY
        corners = [BETWEEN[kind](one, other) for one in (low, high) for other in (least, most)]
        return ANY if any(map(math.isnan, corners)) else (min(corners), max(corners))
    lows, highs = zip(*parts, strict=True)
    return (max if kind == "Max" else min)(lows), (min if kind == "Min" else max)(highs)
