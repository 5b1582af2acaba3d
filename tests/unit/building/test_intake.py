"""What a network gives, by its numbers, its graph and what lies beside it."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bundle_serving.scores import softmax
from scripts.base.errors import UserError
from scripts.intake.metadata import find_beside
from scripts.intake.reading import judge_scores


def round_levels(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    rounded: NDArray[np.float32] = np.round(numbers * 255) / np.float32(255)
    return rounded


@pytest.mark.parametrize("classes", [100, 1000])
@pytest.mark.parametrize("last", ["Softmax", "Sigmoid"])
def test_a_softmax_in_eight_bits_is_one(classes: int, last: str) -> None:
    """Its rounded numbers sum to something else."""
    names = ["in", "soft", "low", "out"]
    kinds = [last, "QuantizeLinear", "DequantizeLinear"]
    nodes = [
        helper.make_node(kind, [before, *(["scale"] * (kind != last))], [after])
        for kind, before, after in zip(kinds, names, names[1:], strict=False)
    ]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [1 / 255])
    graph = helper.make_graph(nodes, "net", [], [], [scale])
    scores = np.random.default_rng(0).normal(size=(9, classes)).astype(np.float32)
    seen, wild = round_levels(softmax(scores)), round_levels(softmax(scores * 1000))
    assert np.abs(seen.sum(axis=1) - 1).max() > 0.01
    found = judge_scores("net", seen, wild, graph, "out", "").gives
    assert found == ("probabilities" if last == "Softmax" else "multi-label")


def test_what_gives_values_is_no_classifier(tmp_path: Path) -> None:
    config = {"id2label": {"0": "valence", "1": "arousal"}, "problem_type": "regression"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="gives values, not classes"):
        find_beside(tmp_path / "net.onnx", {})
