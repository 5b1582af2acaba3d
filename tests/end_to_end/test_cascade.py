"""Two networks behind one call: the small one answers where it is sure."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from bundle_serving.start_server import PIPELINE
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from tests.browser import opened
from tests.project import Project, picture


def ask(http: str, model: str, file: bytes, *outputs: str) -> list[Any]:
    client = tritonclient.http.InferenceServerClient(http)
    try:
        data = np.frombuffer(file, np.uint8)[None]
        tensor = tritonclient.http.InferInput("INPUT", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        answer = client.infer(model, [tensor])
        return [answer.as_numpy(name)[0] for name in outputs]
    finally:
        client.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, assets: Path) -> Iterator[Project]:
    """The small network is trained and the large one is not: only where the small one is unsure
    does the answer become nonsense."""
    project = Project.copy(
        tmp_path_factory.mktemp("cascade"), FLAVOUR="local", ARCH="squeezenet1_1", WEIGHTS="random"
    )
    project.settings["CASCADE"] = str(assets / "weights" / "mobilenet_v2_imagenet.safetensors")
    try:
        yield project
    finally:
        project.make("clean")


def test_the_cascade_answers_as_the_network_that_it_names(project: Project, assets: Path) -> None:
    photo = assets / "images" / "mug.jpg"
    out = project.made("classify", MODEL="cascade", IMG=str(photo), JSON="1")
    assert json.loads(out.splitlines()[-1])["labels"][0]["label"].startswith("coffee mug")
    files = [photo.read_bytes(), picture()] * 6
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(
                lambda file: ask(project.http, "cascade", file, "OUTPUT", "ANSWERED_BY"), files
            )
        )
    (large,) = ask(project.http, PIPELINE, files[1], "OUTPUT")
    for probabilities, (network,) in answers[0::2]:
        assert network == b"mobilenet_v2_onnx" and probabilities.max() >= 0.5
    for probabilities, (network,) in answers[1::2]:
        assert network == b"resnet50_onnx"
        assert np.allclose(probabilities, large, atol=1e-4)
    with pytest.raises(InferenceServerException, match="not a picture") as refused:
        ask(project.http, "cascade", b"no picture at all")
    assert refused.value.status() == "400"


@pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}")
def test_it_is_measured_beside_its_large_network(
    project: Project, assets: Path, tmp_path: Path
) -> None:
    """Of the photo it is sure, of the noise it is not, and the large network is chance."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    shutil.copy(assets / "images" / "vulture.jpeg", pictures)
    (pictures / "noise.jpg").write_bytes(picture())
    said = project.made("bench", MODEL="cascade", QUICK="1", IMAGES=str(pictures))
    assert "threshold 0.5: 1 of 2 passed on" in said and "untrained weights: squeezenet1_1" in said
    (report,) = re.findall(r"report: (\S+)$", said, re.MULTILINE)
    page = project.path / report
    results = json.loads((page.parent / "results.json").read_text())
    assert {one["target"] for one in results["measurements"]} == {"cascade", "ensemble"}
    assert not any(sample["failure"] for m in results["measurements"] for sample in m["rounds"])
    found = results["cascade"]
    division = found["pictures"]["pictures"]
    assert found["threshold"] == 0.5 and (division["pictures"], division["passed_on"]) == (2, 1)
    assert division["agree"] >= 1  # on what it passes on, it is the large network's answer
    rows = list(csv.DictReader((page.parent / "results.csv").open()))
    assert {row["passed_on"] for row in rows} == {"0.5", ""}
    shown = opened(page, tmp_path)
    assert shown.console == [] and shown.wide <= 0
    assert "mobilenet_v2 and squeezenet1_1" in shown.text and "Who answers" in shown.text
