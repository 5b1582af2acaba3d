"""pre.py and post.py of the user's own, in the place of a step."""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bundle_serving.own_steps import StepFault, find_reading, read_by
from bundle_serving.pictures import PictureError, Transform, to_pixels
from bundle_serving.scores import softmax
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders
from scripts.repository import evaluations
from scripts.server import labelled_photos, own_network
from tests.networks import draw_network

SIDE = 8
MIRROR = """
from PIL import ImageOps

def preprocess(picture):
    if picture.width > 100:
        raise ValueError("wider than 100")
    return ImageOps.mirror(picture.resize((8, 8)))
"""
COLDER = """
import numpy as np

def postprocess(scores):
    powers = np.exp(scores / 2 - scores.max() / 2)
    return powers / powers.sum()
"""


def file_of(width: int) -> bytes:
    levels = np.tile(np.linspace(0, 255, width).astype(np.uint8)[None, :, None], (16, 1, 3))
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "JPEG")
    return file.getvalue()


def test_a_program_prepares_the_whole_picture() -> None:
    usual, own = Transform(SIDE, SIDE, fit="squash"), Transform(SIDE, SIDE, program=MIRROR)
    expected, found = (to_pixels(file_of(64), how) for how in (usual, own))
    assert found.shape == expected.shape and found.dtype == np.uint8
    assert found[0, 0, 0] > 200 and expected[0, 0, 0] < 60
    assert not own.is_reduced and usual.is_reduced
    with pytest.raises(PictureError, match=r"refused .*wider than 100.*; send another"):
        to_pixels(file_of(101), own)


@pytest.mark.parametrize(
    ("text", "reason"),
    {
        "x = 1": "pre.py has no function preprocess; call",
        "def preprocess(picture:": "pre.py, line 1: SyntaxError",
        "def preprocess(picture):\n    return picture.none": "pre.py, line 2: AttributeError",
        "import none": "pre.py, line 1: ModuleNotFoundError",
        "def preprocess(picture):\n    return picture": "gave uint8 .16, 64, 3.; give uint8 ",
        "import numpy\ndef preprocess(picture):\n    return numpy.zeros((8, 8, 3))": "gave float64",
    }.items(),
)
def test_what_a_program_does_wrong_is_not_the_pictures_fault(text: str, reason: str) -> None:
    with pytest.raises(StepFault, match=reason) as fault:
        to_pixels(file_of(64), Transform(SIDE, SIDE, program=text))
    assert "\n" not in str(fault.value) and "; " in str(fault.value)


def test_a_program_reads_the_scores(tmp_path: Path) -> None:
    scores = np.array([[0, 2, 4], [1, 1, 1]], np.float32)
    assert find_reading(tmp_path, "single-label") is softmax
    (tmp_path / "post.py").write_text(COLDER)
    found = find_reading(tmp_path, "single-label")(scores)
    assert np.allclose(found, softmax(scores / np.float32(2))) and found.dtype == np.float32
    for text, reason in {
        "[1.0]": "gave .1.; give a probability for each of the 3 classes",
        "scores": "no probability",
        "scores / 0": "no probability",
        "1 // 0": "post.py, line 2: ZeroDivisionError",
    }.items():
        with np.errstate(all="ignore"), pytest.raises(StepFault, match=reason):
            read_by(f"def postprocess(scores):\n    return {text}\n", "", scores)


def test_what_lies_beside_a_network_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: Mapping[str, Any] = {"FROM": str(draw_network(tmp_path / "birds.onnx"))}
    assert own_network.recipe_of("test_birds", words).pre == ""  # type: ignore[attr-defined]
    (tmp_path / "pre.py").write_text(MIRROR)
    (tmp_path / "post.py").write_text(COLDER)
    with pytest.raises(UserError, match=r"pre.py and post.py beside .* would run"):
        own_network.recipe_of("test_birds", words)
    monkeypatch.setenv("TRUST", "1")
    copies = folders.own().networks / "test_birds"
    try:
        recipe: Any = own_network.recipe_of("test_birds", words)
        assert recipe.path_beside(recipe.pre) == copies / "pre.py"
        assert (copies / "pre.py").read_text() == MIRROR
        assert recipe.path_beside(recipe.post) == copies / "post.py"
    finally:
        shutil.rmtree(copies)


def test_labels_in_another_order_are_refused_with_the_right_ones() -> None:
    found = {"of": 40, "best": 38, "usual": 2, "tried": {"BGR": 4}, "pictures": {}, "order": [1, 0]}
    written = evaluations.ORDERED / "test_birds.txt"
    try:
        with pytest.raises(UserError, match="in which 95% are right") as refused:
            labelled_photos._tell(found, "val", ["robin", "wren"], "test_birds")
        assert refused.value.remedy == f"give LABELS={written.relative_to(ROOT)}"
        assert written.read_text().splitlines() == ["wren", "robin"]
    finally:
        written.unlink()
