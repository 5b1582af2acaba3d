"""Somebody's own network, as PyTorch exports it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from bundle_serving.scores import softmax
from scripts.artefacts.exporting import call, unless_it_fits
from scripts.artefacts.manifest import Foreign, Manifest, why_export
from scripts.artefacts.onnx_file import trace_to_file
from scripts.base.errors import UserError
from scripts.steps import adopt
from tests.project import picture


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's own network as they exported it: normalised floats in, probabilities out."""

    class Tiny(torch.nn.Module):  # type: ignore[misc]  # torch comes without types here
        def __init__(self) -> None:
            super().__init__()
            self.features = torch.nn.Conv2d(3, 8, 7, stride=8)
            self.classes = torch.nn.Linear(8, 5)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.classes(self.features(pixels).relu().mean((2, 3))).softmax(1)

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("foreign") / "tiny.onnx"
    torch.onnx.export(
        Tiny().eval(),
        (torch.zeros(2, 3, 96, 96),),
        path,
        input_names=["images"],
        output_names=["likely"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    return path


HOW = {"crop": 96, "resize": 110, "interpolation": "bilinear", "fit": "crop", "pad": 0}
HOW |= {"middle": "even"}
LEVELS = {"channels": "rgb", "scale": 255.0}
NORMALISED = LEVELS | {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def adopted(network: Path, out: Path, *words: str, **how: Any) -> None:
    pictures = json.dumps(HOW | NORMALISED | how)
    arguments = ["--network", str(network), "--pictures", pictures, "--out", str(out)]
    call(unless_it_fits(adopt.adopt), [*arguments, *words])


def test_a_foreign_network_keeps_its_answers(foreign: Path, tmp_path: Path) -> None:
    out = tmp_path / "onnx"
    adopted(foreign, out)
    reference = np.load(out / "reference.npz")
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"input": reference["pixels"]})
    assert scores.shape == (9, 5)
    assert np.abs(softmax(scores) - softmax(reference["scores"])).max() < 1e-5
    assert (out / "labels.txt").read_text().endswith("class 4\n")
    manifest = Manifest.load(out / "manifest.json")
    assert manifest and manifest.describe() == "tiny.onnx" and manifest.transform == HOW
    # The file may be gone later; its answers are not those of another.
    gone = Foreign(tmp_path / "tiny.onnx", None, HOW | NORMALISED)
    assert why_export(out, gone, as_before=True) is None
    other = Foreign(foreign, None, HOW | NORMALISED | {"mean": [0, 0, 0]})
    assert "pictures.mean" in str(why_export(out, other))


def test_other_photos_to_compare_on_mean_another_comparison(foreign: Path, tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "onnx"
    photos.mkdir()
    (photos / "a.png").write_bytes(picture())
    adopted(foreign, out)
    given = Foreign(foreign, None, HOW | NORMALISED, samples=photos)
    assert "samples: none -> " in str(why_export(out, given))
    adopted(foreign, out, "--samples", str(photos))
    assert len(list((out / "pictures").iterdir())) == 2
    # Without SAMPLES= the last comparison will do.
    assert why_export(out, given) is why_export(out, replace(given, samples=None)) is None
    (photos / "b.png").write_bytes(picture())
    assert "samples: " in str(why_export(out, given))


def test_options_that_contradict_a_foreign_network(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(UserError, match=r"2 labels, and tiny\.onnx 5 classes"):
        adopted(foreign, tmp_path / "onnx", "--labels", str(tmp_path / "labels.txt"))
    with pytest.raises(UserError, match=r"float .dynamic, 3, 96, 96., and pictures of 64x64"):
        adopted(foreign, tmp_path / "onnx", crop=64)
    assert not (tmp_path / "onnx").exists()


def test_pytorch_does_not_print_what_it_cannot_export(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line says why; the graph would be the rest of the screen."""

    class Bessel(torch.nn.Module):  # type: ignore[misc]
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(pixels).mean((2, 3))

    example = torch.zeros(2, 3, 8, 8)
    with pytest.raises(Exception, match="bessel_j0"):
        trace_to_file(torch.jit.trace(Bessel(), example), "pixels", example, tmp_path / "network")
    assert capfd.readouterr().out == ""
