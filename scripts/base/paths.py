"""Where the project lies, and its virtual environment. Stdlib only."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"

# PyTorch's own index of CPU builds; on PyPI, torch for Linux brings gigabytes of CUDA with it.
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
