"""What the comparison counts, and what it lays out for the textbook's server."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmark.compare import Cell, sum_up
from benchmark.contenders import OURS
from benchmark.load import Answer, Round, summary
from scripts.artefacts.manifest import Manifest
from scripts.measuring.confidence import Estimate
from scripts.measuring.textbook import server


def test_a_round_counts_between_two_answers() -> None:
    """Two clients, an answer each every 0.1 s; what comes after the end counts for nothing."""
    answers = [Answer(n % 2, 0.1 * (n // 2), 0.1 * (n // 2 + 1)) for n in range(22)]
    found = summary(answers, concurrency=2, end=1.05)
    assert found.images_per_second == pytest.approx(20)
    assert found.p50 == pytest.approx(0.1)
    assert len(found.latencies) == 18


def test_of_a_short_round_everything_counts() -> None:
    found = summary([Answer(0, 0, 2), Answer(1, 0, 4)], concurrency=2, end=1)
    assert found.images_per_second == pytest.approx(0.5)
    assert len(found.latencies) == 2


def test_ratios_are_taken_round_by_round() -> None:
    def rounds(*rates: float) -> list[Round]:
        return [Round(rate, [1 / rate]) for rate in rates]

    slow = Cell("photo", 1, "textbook")
    figures = sum_up({Cell("photo", 1, OURS): rounds(90, 100, 120), slow: rounds(20, 25, 26)})
    assert figures[slow].images_per_second == Estimate(25, 20, 26)
    # Round by round: 90 / 20, 100 / 25 and 120 / 26.
    assert figures[slow].ours == {OURS: Estimate(4.5, 4, 120 / 26)}
    assert figures[Cell("photo", 1, OURS)].ours == {}


def test_the_textbook_gets_the_same_network_and_normalises_in_python(tmp_path: Path) -> None:
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", 3, 8, 8])
    scores = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Cast", ["pixels"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["levels", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "deviation"], ["normalised"]),
        helper.make_node("ReduceMean", ["normalised", "axes"], ["output"], keepdims=0),
    ]
    constants = [
        helper.make_tensor("mean", TensorProto.FLOAT, [1], [120.0]),
        helper.make_tensor("deviation", TensorProto.FLOAT, [1], [60.0]),
        helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3]),
    ]
    graph = helper.make_graph(nodes, "means", [pixels], [scores], constants)
    opsets = [helper.make_opsetid("", 18)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets))
    onnx.save(model, tmp_path / "model.onnx")
    manifest = Manifest({"arch": "means"}, True, {"resize": 8, "crop": 8}, {"classes": 3}, {})
    (tmp_path / "manifest.json").write_text(manifest.dump())

    server.lay_out(tmp_path, tmp_path / "repository")
    config = tmp_path / "repository" / "ensemble_python_resnet50" / "config.pbtxt"
    assert "dims: [ 3 ]" in config.read_text()
    (taken,) = onnx.load(tmp_path / "repository" / "resnet50" / "1" / "model.onnx").graph.input
    assert (taken.name, taken.type.tensor_type.elem_type) == ("input", TensorProto.FLOAT)
    beside = {path.name for path in (tmp_path / "repository" / "preprocessing" / "1").iterdir()}
    assert beside == {"model.py", "recipe.json", "vision.py"}
