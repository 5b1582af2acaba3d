"""Every make command's modules, imported in environments that hold what it installs, no more."""

import subprocess
from pathlib import Path

import pytest

from tests.sources import imports
from tests.sources.imports import Layers
from tests.sources.layers import environment
from tests.unit.project.test_imports import commands

REACHED, _ = imports.follow(*commands())
SETS = sorted({each.layers for each in REACHED}, key=sorted)
HEAVY = {"export", "sentiment", "rivals"}  # PyTorch


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(
            each,
            id="+".join(sorted(each)),
            marks=[pytest.mark.rare] if each & HEAVY else [],
        )
        for each in SETS
    ],
)
def test_every_module_can_be_imported(wanted: Layers, tmp_path: Path) -> None:
    modules = sorted({each.module for each in REACHED if each.layers == wanted})
    (tmp_path / "all.py").write_text("".join(f"import {module}\n" for module in modules))
    with environment(wanted) as folder:
        done = subprocess.run(
            [folder / "bin" / "python", tmp_path / "all.py"], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
