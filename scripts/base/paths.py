"""Paths of the project and its virtual environment. Stdlib only."""

from __future__ import annotations

import hashlib
import os
import re
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
    """A setting, from the environment or .env; python-dotenv, which reads the same in a line, may
    not be installed yet."""
    if name in os.environ:
        return os.environ[name]
    try:
        text = DOTENV.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""
    found = re.findall(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*=(.*)", text, re.MULTILINE)
    given = found[-1] if found else ""
    value = given.strip()
    if value[:1] in ("'", '"'):
        return str(value[1:].partition(value[0])[0])
    return re.sub(r"\s+#.*", "", given).strip()


def find_trusted() -> str | None:
    """The certificates that downloads trust in place of the machine's."""
    named = read_early("CA_BUNDLE").strip()
    return str(FOLDER / expand(named)) if named else None


def find_own() -> Path:
    """The user's own folder, before the settings can be read: its kinds of pipelines bring some."""
    return resolve_own(read_early("OWN").strip() or "own")


def resolve_own(named: str) -> Path:
    return (FOLDER / expand(named)).resolve()


def expand(named: str) -> Path:
    """As a shell does: the ~ of no user's home stays, where pathlib would raise."""
    return Path(os.path.expanduser(named))  # noqa: PTH111


def locate(path: Path) -> Path:
    """Absolute; a link to a file stays: what lies beside that, and its name, say more than where
    the file is kept."""
    is_folder = os.path.isdir(path)  # noqa: PTH112  # pathlib would raise where it may not look
    return path.resolve() if is_folder else path.parent.resolve() / path.name
