"""The network that comes with the project can be made anew by the command that made it."""

from pathlib import Path

import pytest

from tests.pytorch.test_demo_networks import require_trained_anew


@pytest.mark.rare
def test_trained_anew(listener: Path, tmp_path: Path) -> None:
    require_trained_anew("kinds.sound.training", listener, tmp_path / "sounds.safetensors")
