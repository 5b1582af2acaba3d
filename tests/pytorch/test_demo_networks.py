"""The networks that come with the project can be made anew by the command that made them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.project import ROOT


@pytest.mark.rare
@pytest.mark.parametrize("name", ["pictures", "sounds"])
def test_trained_anew(name: str, tmp_path: Path) -> None:
    out = tmp_path / f"{name}.safetensors"
    command = [sys.executable, "-m", "benchmark.demo_networks", name, "--to", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = "scripts/artefacts/drawn" if name == "pictures" else "kinds/sound"
    with (
        safe_open(out, "pt") as made,
        safe_open(ROOT / folder / "weights.safetensors", "pt") as kept,
    ):
        assert made.metadata().keys() == kept.metadata().keys()
        assert [*made.keys()] == [*kept.keys()]
