"""Detectors of transformers, by all that `make add-model` does below the server."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark.foreign.case import Case
from kinds.detection.foreign import CASES, KINDS, SIDE, small
from tests.foreign.expected import require_as_expected
from tests.pipelines import of_mixed_sizes

# What is refused costs nothing, and one of the others is enough before a change lands.
FOUND = {f"{kind}ForObjectDetection": pytest.mark.rare for kind in KINDS}
FOUND["YolosForObjectDetection"] = pytest.mark.long


def some(case: Case) -> object:
    marks = (FOUND[case.name],) if case.name in FOUND else ()
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [some(case) for case in CASES])
def test_it_finds_what_transformers_finds_or_is_refused(case: Case, tmp_path: Path) -> None:
    files = [photo.read_bytes() for photo in of_mixed_sizes(tmp_path)]
    (folder := tmp_path / "detector").mkdir()
    require_as_expected(case, folder, files)


def test_weights_in_half_precision_are_taken_in_single(tmp_path: Path) -> None:
    from kinds.detection.detr import network  # after torchvision, which foreign.py imports

    module, processor = small("Yolos")
    module.half().save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    assert network.build(tmp_path, SIDE).module.dtype.itemsize == 4


def test_each_label_is_a_line(tmp_path: Path) -> None:
    """Others would stand at other numbers than their classes."""
    from kinds.detection.detr import network  # after torchvision, which foreign.py imports

    module, processor = small("Yolos")
    module.config.id2label = {0: "traffic\nlight", 1: "", 2: "tram\x0b"}
    module.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    labels = network.build(tmp_path, SIDE).network.labels
    assert labels == ["__background__", "traffic light", "class 1", "tram"]


def test_transformers_is_shown_16_bits_as_they_are_served() -> None:
    from kinds.detection.detr import network  # after torchvision, which foreign.py imports

    Image.fromarray(np.full((4, 5), 20_000, np.uint16)).save(file := io.BytesIO(), "PNG")
    assert (np.asarray(network._open_picture(file.getvalue())) == 78).all()
