"""Quantisation, of the network that was really exported."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bundle_serving import openvino_engine
from scripts.artefacts.exporting import unless_it_fits
from scripts.artefacts.manifest import why_export
from scripts.base.errors import UserError
from scripts.steps import engine, quantise
from scripts.steps.engine import Check
from scripts.steps.quantise import Quantised
from tests.project import picture


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, and one file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(8):
        (folder / f"{number}.jpg").write_bytes(picture())
    (folder / "LICENCE").write_text("no picture")
    return folder


def test_a_quantised_network_keeps_its_labels(
    exported: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx, out = exported / "versions/1/onnx", tmp_path / "int8"
    wanted = Quantised(onnx, photos, 99)
    unless_it_fits(quantise.quantise)(wanted, out)
    assert "only 6 pictures, used in 48 views" in capsys.readouterr().out
    assert (out / "model.onnx").stat().st_size < 0.4 * (onnx / "model.onnx").stat().st_size
    unless_it_fits(quantise.quantise)(wanted, out)
    assert "fits: nothing to export" in capsys.readouterr().out
    assert why_export(out, replace(wanted, calibration=None), as_before=True) is None
    (photos / "more.jpg").write_bytes(picture())
    assert "calibration" in str(why_export(out, wanted, as_before=True))
    assert "accuracy: 99" in str(why_export(out, Quantised(onnx, None, 90), as_before=True))

    # Judged by its own scores it passes; by those of one that sees something else it does not.
    network = openvino_engine.Engine(out / "model.onnx", "int8", 1)
    pixels = np.load(out / "reference.npz")["pixels"]
    scores = np.concatenate([network({"input": p[None]}, ["output"])["output"] for p in pixels])
    np.savez(out / "reference.npz", pixels=pixels, scores=scores)
    assert engine.decide(Check(out, "int8"))["check"]["top1_equal"] == 2
    scores[:, 7] = 1000
    np.savez(out / "reference.npz", pixels=pixels, scores=scores)
    with pytest.raises(UserError, match="int8 fails the accuracy check"):
        engine.decide(Check(out, "int8"))


def test_one_picture_is_too_few_to_quantise(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(picture())
    with pytest.raises(UserError, match="one to check with"):
        wanted = Quantised(exported / "versions/1/onnx", tmp_path / "photos", 99)
        quantise.quantise(wanted, tmp_path / "int8")
    assert not (tmp_path / "int8").exists()
