"""The pipeline of arrays, with a checkpoint as Places365 publishes it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from PIL import Image
from tritonclient.utils import InferenceServerException

from bundle_client import Client
from kinds.places.tests.by_pytorch import places_by_pytorch
from tests.project import Project

ENSEMBLE = "places_ensemble"


def test_answers_match_pytorch(with_places: Project, places: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = [(300, 200), (64, 96), (256, 256), (40, 500)]
    arrays = [random.integers(0, 256, (*size, 3)).astype(np.uint8) for size in sizes]
    photos = [tmp_path / f"{number}.png" for number in range(len(arrays))]
    for array, photo in zip(arrays, photos, strict=True):
        Image.fromarray(array).save(photo)
    expected = places_by_pytorch(places, photos)
    with Client(with_places.http) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(client.place, arrays * 4))
    for found, right in zip(answers, expected * 4, strict=True):
        assert len(found) == 5
        assert found[0].label == f"place_{right.argmax()}"
        for label in found:
            assert label.probability == pytest.approx(right[label.index], abs=0.01)
    command = {"IMG": str(tmp_path), "MODEL": "places", "JSON": "1", "TOP": "1"}
    printed = map(json.loads, with_places.made("classify", **command).splitlines()[-4:])
    labels = [[label["label"] for label in each["labels"]] for each in printed]
    assert labels == [[each[0].label] for each in answers[:4]]


def test_what_is_no_picture_is_refused(with_places: Project) -> None:
    client = tritonclient.http.InferenceServerClient(with_places.http)
    try:
        grey = tritonclient.http.InferInput("INPUT", [1, 32, 32, 1], "FP32")
        grey.set_data_from_numpy(np.zeros((1, 32, 32, 1), np.float32))
        with pytest.raises(InferenceServerException, match="32x32x1 is not a picture") as refused:
            client.infer(ENSEMBLE, [grey])
        assert refused.value.status() == "400"
        two = tritonclient.http.InferInput("INPUT", [2, 32, 32, 3], "FP32")
        two.set_data_from_numpy(np.zeros((2, 32, 32, 3), np.float32))
        assert client.infer(ENSEMBLE, [two]).as_numpy("postprocess_result").shape == (2, 5)
    finally:
        client.close()


def test_it_tells_what_it_was_made_from(with_places: Project) -> None:
    assert "torchvision/resnet50, weights resnet50_places365.pth.tar" in with_places.made(
        "models", COLUMNS="200"
    )
    missing = with_places.make("up", MODEL="places", PLACES="nowhere.tar")
    assert "places2.csail.mit.edu" in missing.stderr
    assert not list(with_places.path.glob("model_repository/*/1/model.onnx"))
    assert not list(with_places.path.glob("model_repository/**/labels.txt"))
