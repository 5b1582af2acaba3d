"""Paths of the project and its virtual environment. Stdlib only."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where it lies in the containers of steps.
IN_CONTAINERS = "/bundle/"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
DOTENV = ROOT / ".env"
KINDS = ROOT / "kinds"
EXTENSIONS = ROOT / "extensions"

# Distinguishes this checkout from every other one on this machine, even of the same name.
MARK = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]

# PyTorch's own index of CPU builds; PyPI's torch for Linux pulls in gigabytes of CUDA.
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
