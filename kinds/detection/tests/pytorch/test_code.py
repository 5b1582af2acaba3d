"""A detector that brings code of its own is not run."""

from pathlib import Path

import pytest

from scripts.base.errors import UserError
from tests.foreign.test_code import SIDE, folder_of_code


def test_a_detector_that_brings_code(tmp_path: Path) -> None:
    from kinds.detection.detr import network

    marker = tmp_path / "marker"
    folder = folder_of_code(tmp_path / "own", marker, "AutoModelForObjectDetection")
    marker.unlink(missing_ok=True)
    with pytest.raises(UserError, match="cannot read own as a detector"):
        network.build(folder, SIDE)
    assert not marker.exists()
