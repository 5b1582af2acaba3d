"""The first seconds of the first command, before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.project import ROOT


def test_what_takes_its_time_is_said_before_it_does(tmp_path: Path) -> None:
    for name in ("scripts/__init__.py", "scripts/bootstrap.py", "scripts/base", "requirements"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python3"  # it tells its version, and stops at all else
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3 12\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "scripts/bootstrap.py", "tools"],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"- creating a virtual environment in .venv with {python} …\n"
    assert "cannot create a virtual environment" in done.stderr
