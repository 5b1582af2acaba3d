"""Nothing that the bundle uses reports to anybody, or leaves a file in the user's home."""

import os
import subprocess
import sys
from pathlib import Path


def test_onnx_runtime_leaves_nothing_at_home(tmp_path: Path) -> None:
    """By itself it leaves a device's identity there, on most machines."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ORT_")}
    subprocess.run(
        [sys.executable, "-c", "import scripts.steps.checked"],
        env=environment | {"HOME": str(tmp_path)},
        check=True,
    )
    assert not any(tmp_path.iterdir())
