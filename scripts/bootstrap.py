"""Creates the project's virtual environment, a layer at a time. Stdlib only.

    python3 -m scripts.bootstrap tools            what every command needs
    python3 -m scripts.bootstrap tools test       and what the tests need

A layer is a file in requirements/, or one of that name of a kind of pipeline or an extension
(scripts/base/layers.py); locked/ beside it has what it brings along, in which versions.
What is installed already is left alone.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.base import layers, wheels
from scripts.base.errors import UserError, of_the_machine, run_guarded
from scripts.base.lock import hold_lock
from scripts.base.paths import CPU_TORCH, PYTHON, REQUIREMENTS, ROOT, VENV, find_trusted, read_early

# One file per installed layer, with the digest of its requirements. make compares the timestamps.
STAMPS = VENV / "layers"
OUR_PACKAGES = (ROOT / "serving", ROOT / "client")

# Puts our packages on sys.path, by their way from it: the checkout can be moved. The last file of a
# new environment.
OURS = "triton_bundle.pth"

# The stub of Triton's python backend needs numpy 1, whose last builds are for Python 3.12:
# prefer those versions; later ones are fine for running the server in Docker.
NAMES = ("python3", "python3.12", "python3.11", "python3.13", "python3.14")
SERVES = ((3, 11), (3, 12))
OLDEST = (3, 11)

# pip's settings that uv names differently, as variables: options, with passwords of indexes among
# them, could be read by other users of the machine. And those that uv can ignore. With any other
# setting, pip installs.
CONSTRAINT = "UV_CONSTRAINT"
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "constraint": CONSTRAINT,
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
NOTHING_TO_UV = {
    *("cache-dir", "config-file", "disable-pip-version-check", "no-cache-dir", "no-color"),
    *("no-compile", "no-input", "no-warn-script-location", "progress-bar", "quiet"),
    *("require-virtualenv", "retries", "root-user-action", "break-system-packages"),
}


def main() -> None:
    _require_its_python()
    for layer in sys.argv[1:] or ["tools"]:
        ensure(layer)
        (STAMPS / layer).touch()


def ensure(layer: str) -> None:
    """Installs the layer unless it is installed already."""
    if not is_installed(layer):
        _require_ours()
        VENV.mkdir(exist_ok=True)
        # Two first runs at the same time.
        with hold_lock(VENV / "lock", lambda who: _say(f"waiting for {who}, which installs …")):
            if not is_installed(layer):
                _install(layer)


def is_installed(layer: str) -> bool:
    try:
        return (STAMPS / layer).read_text() == digest(layer)
    except OSError:
        return False


def digest(layer: str) -> str:
    """Of what it brings: the same where another one's packages change, or are taken out."""
    if layers.is_apart(layer):
        brings = layers.find_files(layer)[0].read_text().splitlines()
    else:
        brings = layers.read_locked(layer)
    return hashlib.sha256("\n".join([layer, *brings]).encode()).hexdigest()


def _is_made() -> bool:
    return any(VENV.glob(f"lib/python*/site-packages/{OURS}"))


def _require_ours() -> None:
    """What an interrupted run of ours left is removed; it has our lock at least."""
    if any(VENV.glob("*")) and not (VENV / "lock").exists() and not _is_made():
        raise UserError(
            f"{VENV.name} is an environment that make did not make",
            f"move it elsewhere, or rm -r {VENV.name}; then run it again",
        )


def _require_its_python() -> None:
    """Else nothing runs, or an import fails, and neither says why."""
    version = _version_of(str(PYTHON))
    fits = version and (VENV / "lib" / f"python{version[0]}.{version[1]}").is_dir()
    if _is_made() and not fits:
        raise UserError(
            f"the Python that {VENV.name} was made with is gone",
            f"rm -r {VENV.name}, and the next command makes it anew",
        )


def require_chosen(wanted: str) -> None:
    """The Python is chosen where the environment is made."""
    has = sys.version_info[:2]
    if _version_of(wanted) != has:
        raise UserError(
            f"PYTHON={wanted} is not the Python {has[0]}.{has[1]} of {VENV.name}",
            "make clean, then this again",
        )


def _install(layer: str) -> None:
    if not _is_made():
        _create()
    file, *_ = layers.find_files(layer)
    _say(f"installing {layer} ({file.relative_to(ROOT)}) …")
    began = time.monotonic()
    if layers.is_apart(layer):
        words = ["-r", str(file), "--no-deps", "--require-hashes", "--upgrade"]
        words += ["--target", str(VENV / layer), "--platform", "manylinux1_x86_64"]
        _pip([*words, "--only-binary", ":all:"])
    else:
        has_torch = any(line.startswith("torch==") for line in layers.read_locked(layer))
        settings = pip_settings()
        indexes = name_indexes(settings) if has_torch else ""
        _remove_halves()
        if not _by_uv(layer, for_uv(settings), indexes):
            _remove_halves()
            _by_pip(layer, indexes)
    _say(f"done in {time.monotonic() - began:.0f} s", "  ")
    STAMPS.mkdir(exist_ok=True)
    for each in layers.find_included(layer):
        (STAMPS / each).write_text(digest(each))


def _remove_halves() -> None:
    """What an interruption or a full disk cut short counts as installed, for pip and for uv; both
    write INSTALLER when the rest is there."""
    for package in VENV.glob("lib/python*/site-packages/*.dist-info"):
        if not (package / "INSTALLER").exists():
            shutil.rmtree(package)


def _say(text: str, mark: str = "- ") -> None:
    """JSON=1: a line of JSON, as what commands say."""
    print(json.dumps({"says": text}) if os.environ.get("JSON") else f"{mark}{text}", flush=True)


def _create() -> None:
    """A fresh environment; the remains of an interrupted run are removed."""
    for leftover in VENV.iterdir():
        if leftover.name != "lock":
            is_folder = leftover.is_dir() and not leftover.is_symlink()  # as lib64 is one
            shutil.rmtree(leftover) if is_folder else leftover.unlink()
    python = _find_python()
    _say(f"creating a virtual environment in .venv with {python} …")
    made = subprocess.run([python, "-m", "venv", VENV], capture_output=True, text=True)
    if made.returncode:
        said = (made.stdout + made.stderr).strip()
        if full := of_the_machine(Exception(said)):
            raise full
        cause = f"{python} cannot create a virtual environment"
        if re.search("ensurepip is not|No module named", said):
            version = ".".join(map(str, _version_of(python) or ()))
            raise UserError(cause, f"install its venv module: apt-get install python{version}-venv")
        raise UserError(
            f"{cause}: {(said.splitlines() or ['no message'])[-1].removeprefix('Error: ')}",
            "move the folder to a disk that has links and runs programs, to a path without ':'",
        )
    (packages,) = (VENV / "lib").glob("python*/site-packages")
    paths = "".join(f"{os.path.relpath(folder, packages)}\n" for folder in OUR_PACKAGES)
    (packages / OURS).write_text(paths)


def _find_python() -> str:
    wanted = read_early("PYTHON")
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
    except OSError as fault:
        if fault.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None
    numbers = answer.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def can_serve() -> bool:
    """Whether Triton's python backend works with the environment's Python."""
    return _version_of(str(PYTHON)) in SERVES


def name_indexes(settings: Mapping[str, str]) -> str:
    """pip's extra ones, with PyTorch's if that answers."""
    return " ".join([*settings.get("extra-index-url", "").split(), torch_index()]).strip()


def torch_index() -> str:
    """PyTorch's index if that answers; otherwise pip uses its own index."""
    index = read_early("TORCH_INDEX") or CPU_TORCH
    return index if wheels.does_answer(index, find_trusted()) else ""


def _pip(words: list[str], variables: Mapping[str, str] | None = None) -> None:
    code, output = _run_shown(
        [str(PYTHON), "-m", "pip", "install", "--no-compile", "--no-input", *words], variables
    )
    if code:
        errors = [line for line in output if line.startswith("ERROR")] or output[-3:]
        if full := of_the_machine(Exception(errors[-1])):
            raise full
        raise UserError(
            f"pip failed: {find_broken(output)}{errors[-1].removeprefix('ERROR: ')}",
            "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy), "
            "then run it again; what is installed is kept",
        )


def find_broken(output: Sequence[str]) -> str:
    """Why no index answered, where pip then says that it found nothing there."""
    broken = re.search(r"""broken by .*?(\w[^'"\]>]*)['"]\)+': /""", "\n".join(output))
    return f"{broken[1]}; " if broken else ""


def _by_pip(layer: str, indexes: str) -> None:
    with _write_checked(layer) as (file, without):
        _pip(["--no-deps", "--require-hashes", "-r", str(file)])
        if without:
            _pip(without, {"PIP_EXTRA_INDEX_URL": indexes})


def _by_uv(layer: str, variables: Mapping[str, str] | None, indexes: str) -> bool:
    """Whether uv could install it, in a tenth of pip's time. What it cannot do, pip does or tells
    why."""
    if variables is None:
        return False
    if not any(VENV.glob("lib/python*/site-packages/uv-*.dist-info/INSTALLER")):
        with _write_checked("uv") as (file, _):
            take = ["-m", "pip", "install", "--no-compile", "--no-input", "--retries", "0"]
            take += ["--no-deps", "--require-hashes", "-r", str(file)]
            if subprocess.run([PYTHON, *take], capture_output=True).returncode:
                return False
    install = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
    # As pip does it: the best of all indexes, and not of the first one that has any.
    install += ["--index-strategy", "unsafe-best-match"]
    with _write_checked(layer) as (file, without):
        pinned = ["--no-deps", "-r", str(file)]
        free = {name: value for name, value in variables.items() if name != CONSTRAINT}
        # With hashes uv takes no constraint, so whether they fit is asked before.
        commands = [(["--dry-run", *pinned], variables)] if free != variables else []
        commands += [(["--require-hashes", *pinned], free)]
        commands += [(without, {**variables, "UV_EXTRA_INDEX_URL": indexes})] if without else []
        return all(_run_shown([*install, *words], given)[0] == 0 for words, given in commands)


@contextmanager
def _write_checked(layer: str) -> Iterator[tuple[Path, list[str]]]:
    try:
        with wheels.write_checked(layers.read_locked(layer), REQUIREMENTS) as found:
            yield found
    except wheels.NoHash as fault:
        raise UserError.from_fault(fault) from None


def pip_settings() -> dict[str, str]:
    """Those of this machine."""
    asked = [str(PYTHON), "-m", "pip", "config", "list"]
    lines = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines()
    settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):  # the last one wins
        for line in lines:
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section):
                settings[name] = ast.literal_eval(value)
    return settings


def for_uv(settings: Mapping[str, str]) -> dict[str, str] | None:
    """Settings of pip, as variables of uv; None where it has none for one of them."""
    if settings.keys() - UV_VARIABLES.keys() - NOTHING_TO_UV:
        return None
    return {
        variable: ("," if name == "find-links" else " ").join(settings[name].split())
        for name, variable in UV_VARIABLES.items()
        if settings.get(name)
    }


def _run_shown(
    command: list[str], variables: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Runs it and shows what it is at, in one moving line of a terminal: its exit status, and all
    its output."""
    began = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(
        command,
        env=os.environ | (variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as installing:
        assert installing.stdout
        for line in installing.stdout:
            output.append(line.rstrip())
            note = re.match(r"\s*(Collecting|Downloading|Installing)\s+(\S+)", line)
            if note and sys.stdout.isatty():
                seconds = time.monotonic() - began
                print(
                    f"\r\033[K  {note[1].lower()} {note[2]} ({seconds:.0f} s)", end="", flush=True
                )
    if sys.stdout.isatty():
        print("\r\033[K", end="")
    return installing.returncode, output


if __name__ == "__main__":
    sys.exit(run_guarded(main))
