"""The networks that come with the project can be made anew by the command that made them."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.project import ROOT


def require_trained_anew(program: str, weights: Path, out: Path) -> None:
    subprocess.run([sys.executable, "-m", program, "--to", str(out)], cwd=ROOT, check=True)
    with safe_open(out, "pt") as made, safe_open(weights, "pt") as kept:
        assert made.metadata().keys() == kept.metadata().keys()
        assert [*made.keys()] == [*kept.keys()]


@pytest.mark.rare
def test_trained_anew(trained: Path, tmp_path: Path) -> None:
    require_trained_anew("benchmark.demo_networks", trained, tmp_path / "pictures.safetensors")
