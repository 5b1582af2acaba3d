"""Somebody's own network, from an ONNX file to a served answer, with nothing of it known before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from bundle_client import Client
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.scores import softmax
from scripts.host import temporary
from scripts.mould import write
from tests.project import ROOT, picture


def recipe(folder: Path) -> Path:
    said = yaml.safe_load((ROOT / "recipes" / "resnet50.yaml").read_text())
    said |= {"source": "birds.onnx", "labels": "birds.txt"}
    said["models"] = {
        "ensemble": "birds",
        "preprocessing": "birds_pixels",
        "network": "birds_network",
        "postprocessing": "birds_scores",
    }
    said["pictures"] |= {"resize": 72}
    del said["pictures"]["crop"], said["classes"]
    (folder / "birds.yaml").write_text(yaml.safe_dump(said))
    return folder / "birds.yaml"


def export(folder: Path) -> None:
    """A network of three birds."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 8, stride=8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
        torch.nn.Softmax(1),
    ).eval()
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 64, 64),),
        folder / "birds.onnx",
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    (folder / "birds.txt").write_text("robin\nwren\ncrow\n")


def test_a_foreign_network_is_served(tmp_path: Path) -> None:
    import onnxruntime

    export(tmp_path)
    models = tmp_path / "models"
    assert write.main(["--recipe", str(recipe(tmp_path)), "--out", str(models)]) == 0
    file = picture()
    pixels = to_pixels(file, Transform(resize=72, crop=64))
    network = onnxruntime.InferenceSession(models / "birds_network_onnx" / "1" / "model.onnx")
    expected = softmax(network.run(["output"], {"input": pixels[None]})[0])[0]
    with (
        temporary.triton("the server", models, tmp_path / "log", "birds") as (http, _),
        Client(http, model="birds") as client,
    ):
        found = client.classify(file, top=3).labels
    assert {label.label for label in found} == {"robin", "wren", "crow"}
    for label in found:
        assert np.isclose(label.probability, expected[label.index], atol=1e-3)
