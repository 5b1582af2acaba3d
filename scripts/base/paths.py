"""Where the project lies, and its virtual environment. Stdlib only."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
DOTENV = ROOT / ".env"

# Tells this checkout from all others on this machine, of whatever name.
MARK = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]

# PyTorch's own index of CPU builds; on PyPI, torch for Linux brings gigabytes of CUDA with it.
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
