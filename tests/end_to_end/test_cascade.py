"""Two networks behind one call: the small one answers where it is sure."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from bundle_serving.start_server import PIPELINE
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


def test_the_cascade_answers_as_the_network_that_it_names(tmp_path: Path, assets: Path) -> None:
    """The small network is trained and the large one is not: only where the small one is unsure
    does the answer become nonsense."""
    project = Project.copy(tmp_path, FLAVOUR="local", ARCH="squeezenet1_1", WEIGHTS="random")
    project.settings["CASCADE"] = str(assets / "weights" / "mobilenet_v2_imagenet.safetensors")
    photo = assets / "images" / "mug.jpg"
    try:
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
    finally:
        project.make("clean")
