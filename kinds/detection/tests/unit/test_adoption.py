"""The recipe of a detector that is added."""

import json
from pathlib import Path

import pytest

from kinds.detection.adoption import make_recipe as of_detector
from scripts.base.errors import UserError
from scripts.repository.sources import find_source


def test_a_recipe_of_a_detector(tmp_path: Path) -> None:
    config, prepared = tmp_path / "config.json", tmp_path / "preprocessor_config.json"
    config.write_text(json.dumps({"architectures": ["DetrForObjectDetection"]}))
    prepared.write_text(json.dumps({"size": {"shortest_edge": 800, "longest_edge": 1333}}))
    assert find_source(str(tmp_path)).path == tmp_path
    made = of_detector("street", tmp_path, {})
    assert made.side == 800 and made.defaults()["WEIGHTS"] == str(tmp_path)
    assert made.members == {"street_preprocessing", "street_onnx", "street_trt"} | {
        "street_postprocessing"
    }
    assert of_detector("street", tmp_path, {"SIZE": "320"}).side == 320
    prepared.write_text(json.dumps({"size": {"height": 640, "width": 640}}))
    assert of_detector("street", tmp_path, {}).side == 640
    prepared.write_text(json.dumps({"size": {"height": 480, "width": 640}}))
    for given, cause in (
        ({}, "does not name a size with one side"),
        ({"SIZE": "480x640"}, "squashed into a square"),
        ({"LABELS": "street.txt"}, "LABELS= is not for a detector"),
    ):
        with pytest.raises(UserError, match=cause):
            of_detector("street", tmp_path, given)
    config.write_text(json.dumps({"architectures": ["DetrForSegmentation"]}))
    assert find_source(str(tmp_path)).other == str(tmp_path)
