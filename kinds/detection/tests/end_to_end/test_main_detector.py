"""A detector as the main pipeline, whose commands then mean it."""

import json
from pathlib import Path

import pytest

from benchmark.foreign.case import pictures
from kinds.detection import foreign as detectors
from kinds.detection.tests.by_torchvision import ask_for_boxes, assert_same_boxes
from tests.end_to_end.own.test_own_main import ask_plainly, fresh, require_alone
from tests.project import Project

__all__ = ["fresh"]  # a fixture
pytestmark = pytest.mark.rare


def test_a_detector_is_served_alone_and_as_it_is(fresh: Project, tmp_path: Path) -> None:
    truth, (file, *_) = detectors.save_detector("Yolos", tmp_path / "street"), pictures(1)
    fresh.made("up", FROM=f"{tmp_path}/street")
    require_alone(fresh, "street")
    (tmp_path / "street.png").write_bytes(file)
    for command in ("classify", "detect"):
        answer = fresh.made(command, IMG=f"{tmp_path}/street.png", JSON="1")
        assert len(json.loads(answer)["boxes"]) == truth(file)["SCORES"].size
    traced = fresh.made("trace", IMG=f"{tmp_path}/street.png")
    assert any(f"street.png: {label}, " in traced for label in detectors.LABELS.values())
    assert ask_plainly(fresh, file)["model"] == "street"
    assert_same_boxes(truth(file), ask_for_boxes(fresh.http, "street", file), detectors.THRESHOLD)
    fresh.made("down")
