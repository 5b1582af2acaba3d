"""A detector of transformers, from the folder that it is saved in to boxes, and to its next
version."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark.foreign.case import Truth
from kinds.detection import foreign as detectors
from kinds.detection.tests.by_torchvision import ask_for_boxes, assert_same_boxes
from scripts.measuring.perf_analyzer import has_libb64
from tests.pipelines import of_mixed_sizes
from tests.project import Project, error_lines


@pytest.fixture
def own(served: Project) -> Iterator[Project]:
    kept = served.settings.keys() - {"ARCH", "WEIGHTS", "SAMPLES"}
    project = replace(served, settings={name: served.settings[name] for name in kept})
    yield project
    project.make("remove-model", NAME="street")


def answers_as(own: Project, truth: Truth, photos: list[Path]) -> None:
    """Of pictures that share batches, and of some in one request."""
    expected = [truth(photo.read_bytes()) for photo in photos]
    assert any(each["SCORES"].size for each in expected)
    files = [photo.read_bytes() for photo in photos]
    with ThreadPoolExecutor(len(files)) as pool:
        answers = list(pool.map(lambda file: ask_for_boxes(own.http, "street", file), files))
    together = ask_for_boxes(own.http, "street", *files[:4])
    for known, answer in zip(expected, answers, strict=True):
        assert_same_boxes(known, answer, detectors.THRESHOLD)
    for number, known in enumerate(expected[:4]):
        found = {name: each[number : number + 1] for name, each in together.items()}
        assert_same_boxes(known, found, detectors.THRESHOLD)


@pytest.mark.rare
def test_from_a_folder_to_boxes(own: Project, tmp_path: Path) -> None:
    truth, photos = detectors.save_detector("Detr", tmp_path / "street"), of_mixed_sizes(tmp_path)
    options = {"NAME": "street", "FROM": str(tmp_path / "street")}
    odd = own.make("add-model", **options, LABELS="x.txt")
    (line,) = error_lines(odd.stderr + odd.stdout)
    assert "LABELS= is not for a detector" in line
    output = own.made("add-model", **options)
    assert "street, serving street, " in output and "answers as street itself" in output
    answers_as(own, truth, photos)
    words = {"MODEL": "street", "IMG": str(photos[1]), "OUT": str(tmp_path / "drawn.png")}
    told = json.loads(own.made("detect", JSON="1", **words).splitlines()[-1])
    labels = {each["label"] for each in told["boxes"]}
    assert labels and labels <= {*detectors.LABELS.values()}
    drawn, photo = (np.asarray(Image.open(path)) for path in (tmp_path / "drawn.png", photos[1]))
    assert drawn.shape == photo.shape and (drawn != photo).any()
    assert "removed: street" in own.made("remove-model", NAME="street")


@pytest.mark.rare
def test_from_a_folder_to_the_next(own: Project, tmp_path: Path) -> None:
    first, second = (
        detectors.save_detector("Yolos", tmp_path / f"street{seed}", seed) for seed in range(2)
    )
    photos = of_mixed_sizes(tmp_path)
    own.made("add-model", NAME="street", FROM=str(tmp_path / "street0"))
    answers_as(own, first, photos)
    if has_libb64() and own.settings["FLAVOUR"] == "local":
        report = own.made("bench", MODEL="street", QUICK="1", IMAGES=str(photos[1]))
        assert "ensemble" in report and "bare network" in report and "failed" not in report
    detectors.save_detector("ConditionalDetr", tmp_path / "independent")
    wrong = own.make("publish", MODEL="street", WEIGHTS=str(tmp_path / "independent"))
    (line,) = error_lines(wrong.stderr + wrong.stdout)
    assert "labels of independent are independent, and the pipeline's likeliest" in line
    own.made("publish", MODEL="street", WEIGHTS=str(tmp_path / "street1"))
    rolled = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20", "ANYWAY": "1"}
    output = own.made("rollout", MODEL="street", **rolled)
    assert "street version 2 is live; 0 of" in output
    answers_as(own, second, photos)
    assert "version 2 live (rollout)" in own.made("history", MODEL="street")
