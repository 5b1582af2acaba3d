"""Paths of the project and its virtual environment. Stdlib only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where it lies in the containers of steps.
IN_CONTAINERS = "/bundle/"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
DOTENV = ROOT / ".env"
# What OWN= is relative to.
FOLDER = ROOT
KINDS = ROOT / "kinds"
EXTENSIONS = ROOT / "extensions"

# Distinguishes this checkout from every other one on this machine, even of the same name.
MARK = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]

# PyTorch's own index of CPU builds; PyPI's torch for Linux pulls in gigabytes of CUDA.
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def read_early(name: str) -> str:
    """A setting, from the environment or .env; python-dotenv may not be installed yet."""
    if name in os.environ:
        return os.environ[name]
    try:
        lines = DOTENV.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    found = (line.partition("=")[2] for line in lines if line.startswith(f"{name}="))
    return next(found, "").strip("\"' ")


def find_own() -> Path:
    """The user's own folder, before the settings can be read: its kinds of pipelines bring some."""
    return resolve_own(read_early("OWN").strip() or "own")


def resolve_own(named: str) -> Path:
    return (FOLDER / Path(named).expanduser()).resolve()
