"""NVIDIA's own parser and builder take its networks, as tests/tensorrt has it of the others."""

from pathlib import Path

import pytest

from scripts.artefacts.workspace import Workspace
from tests.networks import needs_nvidias_builder
from tests.tensorrt.test_nvidias_parser import importable, types_after_its_step

__all__ = ["importable"]

pytestmark = [needs_nvidias_builder, pytest.mark.long]


def test_sounds(listener: Path, tmp_path: Path) -> None:
    assert types_after_its_step("sounds", Workspace(tmp_path), SOUNDS=str(listener)) == {"HALF"}
