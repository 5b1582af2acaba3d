"""Nothing that the bundle uses reports to anybody, or leaves a file in the user's home."""

import os
import subprocess
import sys
from pathlib import Path


def test_onnx_runtime_leaves_nothing_at_home(tmp_path: Path) -> None:
    environment = {name: said for name, said in os.environ.items() if not name.startswith("ORT_")}
    for imported, leaves in (("onnxruntime", True), ("scripts.steps.checked", False)):
        home = tmp_path / imported
        home.mkdir()
        subprocess.run(
            [sys.executable, "-c", f"import {imported}"],
            env=environment | {"HOME": str(home)},
            check=True,
        )
        assert any(home.iterdir()) == leaves, imported
