"""What a model's program imports and the server lacks: requirements.txt beside it, installed in a
folder of the model's own.

Versions are chosen once for each content of the file, noted with their hashes, and installed by
them. What the server has stays as it is there: a version of its own would be another one in the
same process.
"""

import hashlib
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bundle_serving.own_steps import PACKAGES
from scripts.base import console, files, wheels
from scripts.base.errors import UserError, of_the_machine
from scripts.base.paths import PYTHON, REQUIREMENTS, ROOT

NAME = "requirements.txt"
LOCKED = "locked.txt"
NOTED = ".for"  # which server, and of which content
HERE = ROOT / "build" / "cache" / "packages"
SERVERS = REQUIREMENTS / "locked" / "serve.txt"
# Of Debian 12, which the server's image is made of.
PYTHON_IN_IMAGE, GLIBC_IN_IMAGE = (3, 11), 36
OLDEST_GLIBC = 5


def find_beside(file: Path) -> Path | None:
    path = file.with_name(NAME)
    return path if path.is_file() else None


def copy(requirements: Path, to: Path) -> None:
    """With the places of other files that it names as they are from there."""

    def name_whole(found: re.Match[str]) -> str:
        path = requirements.parent / found[2]
        return f"{found[1]}{path if path.exists() else found[2]}"

    text = re.sub(r"^(-[frc][ ]?|--[a-z-]+[ =])(\S+)", name_whole, _read(requirements), flags=re.M)
    files.write(to, text)


def folder_of(requirements: Path) -> Path:
    return HERE / hashlib.sha256(_read(requirements).encode()).hexdigest()[:16]


def list_files(requirements: Path) -> dict[str, Path]:
    """As they lie in a version's folder."""
    folder = folder_of(requirements)
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {f"{PACKAGES}/{path.relative_to(folder)}": path for path in found}


def prepare(requirements: Path, flavour: str, versions: Path | None = None) -> Path:
    """The folder with all of them, for this flavour's server; taken from a version that has them,
    such as one from a backup, or installed."""
    if flavour == "gpu":
        raise UserError(
            f"{requirements}: NVIDIA's server image takes no packages",
            "serve with FLAVOUR=cpu or FLAVOUR=local, or remove the file",
        )
    target = folder_of(requirements)
    fits = "\n".join([target.name, *_platform(flavour), files.sha256(SERVERS)])
    noted = target / NOTED
    of_versions = versions.glob(f"[0-9]*/models/*/{PACKAGES}/{NOTED}") if versions else ()
    for there in (noted, *of_versions):
        if there.is_file() and there.read_text() == fits:
            if there != noted:
                files.link_tree(there.parent, target)
            return target
    console.note(f"installing what {requirements} names, for the model alone …")
    with files.whole_folder(target) as draft, TemporaryDirectory() as scratch:
        locked = _choose(requirements, flavour, Path(scratch))
        files.write(draft / LOCKED, "".join(f"{line}\n" for line in locked))
        if locked:
            options = ["--no-deps", "--require-hashes", "--target", str(draft)]
            options += [*_platform(flavour), *_find_options(requirements)]
            _pip(requirements, [*options, "-r", str(draft / LOCKED)])
        files.write(draft / NOTED, fits)
    return target


def find_installed(versions: Path) -> list[Path]:
    """The folders of packages of all that is kept there, of every pipeline."""
    return sorted(noted.parent for noted in versions.glob(f"**/models/*/{PACKAGES}/{NOTED}"))


def _read(requirements: Path) -> str:
    try:
        return requirements.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"cannot read {requirements} ({fault})", "put it back") from None


def _choose(requirements: Path, flavour: str, scratch: Path) -> list[str]:
    """name==version --hash=…, without what the server has."""
    report = scratch / "report.json"
    options = ["--dry-run", "--ignore-installed", "--target", str(scratch), "--report", str(report)]
    options += ["-c", str(SERVERS), *_platform(flavour), "-r", str(requirements)]
    _pip(requirements, options)
    servers = {wheels.parts(line)[0] for line in wheels.read_locked(REQUIREMENTS, "serve")}
    locked = []
    for each in json.loads(report.read_text())["install"]:
        name, version = wheels.name_of(each["metadata"]["name"]), each["metadata"]["version"]
        found = each["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if not found:
            raise UserError(
                f"{requirements}: {name} is no file that has a hash",
                "name a version of it that an index has",
            )
        if name not in servers:
            locked.append(f"{name}=={version} --hash=sha256:{found}")
    return sorted(locked)


def _find_options(requirements: Path) -> list[str]:
    """From where it wants them."""
    lines = (line for line in _read(requirements).splitlines() if line.startswith("-"))
    wanted = (line for line in lines if not re.match("-[rce]|--(req|con|edi)", line))
    return [word for line in wanted for word in shlex.split(line, comments=True)]


def _platform(flavour: str) -> list[str]:
    """pip's options for what the server runs on: files that are built for it, or for any."""
    is_here = flavour == "local"
    python = sys.version_info[:2] if is_here else PYTHON_IN_IMAGE
    here = int(platform.libc_ver()[1].split(".")[1])
    glibc = min(here, GLIBC_IN_IMAGE) if is_here else GLIBC_IN_IMAGE
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc, OLDEST_GLIBC - 1, -1)]
    tags += [f"{name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1")]
    words = ["--only-binary", ":all:", "--python-version", "{}.{}".format(*python)]
    return [*words, *(word for tag in [*tags, f"linux_{machine}"] for word in ("--platform", tag))]


def _pip(requirements: Path, options: Sequence[str]) -> None:
    command = [str(PYTHON) if PYTHON.exists() else sys.executable, "-m", "pip"]
    command += ["--disable-pip-version-check", "install", "--no-compile", "--no-input", *options]
    here = requirements.parent  # to which its own paths are relative
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    if done.returncode:
        raise _explain(requirements, done.stdout + done.stderr)


def _explain(requirements: Path, output: str) -> UserError:
    if "No module named pip" in output:
        return UserError(
            f"{requirements} cannot be installed by this image, which has no pip",
            "let make do it: make up, or make add-callable",
        )
    asked = re.findall(r"^    (?:The user requested )?(.+)$", output, re.MULTILINE)
    fixed = [each.removeprefix("(constraint) ") for each in asked if "(constraint)" in each]
    if fixed and (wishes := [each for each in asked if "(constraint)" not in each]):
        return UserError(
            f"{requirements} clashes with the server: it has {fixed[0]}, and the file asks for "
            f"{wishes[0]}",
            "ask for what fits: the program runs in one process with it",
        )
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if "ERROR: " in line]
    last = errors[-1] if errors else "; ".join(output.splitlines()[-1:])
    return of_the_machine(Exception(last)) or UserError(
        f"{requirements} cannot be installed ({last})",
        "correct it; only wheels are taken, and pip's own settings say from where",
    )
