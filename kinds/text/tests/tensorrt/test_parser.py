"""NVIDIA's own parser and builder take its networks, as tests/tensorrt has it of the others."""

from pathlib import Path

import pytest

from scripts.artefacts.workspace import Workspace
from scripts.base.paths import VENV
from tests.networks import needs_nvidias_builder
from tests.tensorrt.test_nvidias_parser import importable, types_after_its_step

__all__ = ["importable"]

pytestmark = [needs_nvidias_builder, pytest.mark.rare]


@pytest.mark.skipif(not (VENV / "minilm").is_dir(), reason="minilm is not installed")
def test_the_classifier_of_texts(tmp_path: Path) -> None:
    assert types_after_its_step("sentiment", Workspace(tmp_path), SENTIMENT="minilm") == {"HALF"}
