"""Renews requirements/constraints.txt, the versions, and from it the lists in locked/: what each
file of a layer brings along, and the hashes of all files. Resolved by uv, for every Python and
processor that can be used."""

import os
import re
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.markers import Marker

from scripts import bootstrap
from scripts.base import files, layers, wheels
from scripts.base.errors import UserError
from scripts.base.paths import REQUIREMENTS, VENV

HASHES = REQUIREMENTS / "locked" / "hashes.txt"

# Installed beside other packages, whose needs the image has.
ALONE = ("serve-gpu",)

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")

BY_MAKE = "# Written by: make pins"
OF_HASHES = f"""\
# The hash of every file of every version in constraints.txt, but for torch and torchvision, whose
# builds come from PyTorch's own index. {BY_MAKE.removeprefix("# ")}
"""


def renew(only: Collection[str] | None = None) -> Iterator[str]:
    """Shows what changed. `only` these packages are renewed; without, all; of none, the lists are
    written again. Nothing is written before all is resolved."""
    before = layers.CONSTRAINTS.read_text()
    with TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        everything = scratch / "everything.in"
        everything.write_text("".join(f"-r {file}\n" for file in layers.list_resolved()))
        stay = scratch / "stay.txt"
        stay.write_text(staying(before, only))
        after = update_versions(before, _compile_layer(everything, stay))
        new = {layers.CONSTRAINTS: after}
        stay.write_text(staying(after, ()))
        for file in layers.list_resolved():
            options = ["--no-deps"] if file.stem in ALONE else []
            lines = _compile_layer(file, stay, *options)
            new[file.parent / "locked" / file.name] = "\n".join([BY_MAKE, *lines]) + "\n"
        new[HASHES] = OF_HASHES + _hashes(after, scratch)
    for path, text in new.items():
        files.write(path, text)
    yield from changes(before, after)


def staying(constraints: str, only: Collection[str] | None) -> str:
    """The versions that may not change. PyTorch is taken as its build for CPUs, so that CUDA does
    not count as something that it brings along."""
    renewed = {wheels.name_of(name) for name in only or ()}
    lines = []
    for line in constraints.splitlines():
        name = wheels.name_of(line.partition("==")[0])
        of_cpu = name == "torch"
        stays = name not in renewed if only is not None else of_cpu and not bootstrap.torch_index()
        if "==" in line and stays:
            lines.append(re.sub(r"(==[^\s;]+)", r"\1+cpu", line) if of_cpu else line)
    return "\n".join(lines) + "\n"


def _compile_layer(source: Path, constraints: Path, *options: str) -> list[str]:
    found = _uv(
        *("pip", "compile", source, "-c", constraints, "--universal", "--python-version"),
        *(PYTHONS[0], "--no-header", "--no-annotate", *options),
    )
    lines = (re.sub(r"==([^\s;+]+)\+\w+", r"==\1", line) for line in found.splitlines())
    return [line for line in lines if line and _can_be_used(line)]


def _can_be_used(line: str) -> bool:
    _, _, marker = line.partition(" ; ")
    return not marker or any(
        Marker(marker).evaluate(
            {
                "sys_platform": "linux",
                "platform_system": "Linux",
                "os_name": "posix",
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
                "python_version": python,
                "python_full_version": f"{python}.1",
                "platform_machine": processor,
                "extra": "",
            }
        )
        for python in PYTHONS
        for processor in PROCESSORS
    )


def update_versions(constraints: str, resolved: Collection[str]) -> str:
    """With the new versions in the places of the old ones, and their comments."""
    versions: dict[str, list[str]] = {}
    names = {}
    for line in resolved:
        name, version, _ = wheels.parts(line)
        names[name] = line.partition("==")[0]
        if version not in versions.setdefault(name, []):
            versions[name].append(version)
    others = {*layers.list_files()} - {*layers.list_resolved()}  # which pin what they are of
    apart = "".join(file.read_text() for file in others)
    lines, seen = [], set()
    for line in constraints.splitlines():
        name = wheels.name_of(line.partition("==")[0])
        if "==" not in line or f"\n{name}==" in apart:
            lines.append(line)
        elif name in versions:
            at = 1 if name in seen and len(versions[name]) > 1 else 0
            lines.append(re.sub(r"==[^\s;]+", f"=={versions[name][at]}", line, count=1))
        seen.add(name)
    lines += [f"{names[name]}=={versions[name][0]}" for name in versions.keys() - seen]
    head = [line for line in lines if line.startswith("#")]
    with_markers = [line for line in lines if ";" in line.partition("#")[0]]
    rest = [line for line in lines if line not in head and line not in with_markers]
    rest.sort(key=lambda line: line.partition("==")[0].lower())
    return "\n".join([*head, *with_markers, *rest]) + "\n"


def _hashes(constraints: str, scratch: Path) -> str:
    source = scratch / "all.in"
    source.write_text(
        "".join(
            f"{line}\n"
            for line in constraints.splitlines()
            if line.partition("==")[0] not in wheels.WITHOUT_HASH
        )
    )
    options = ("--no-deps", "--universal", "--python-version", PYTHONS[0], "--generate-hashes")
    return _uv("pip", "compile", source, *options, "--no-header", "--no-annotate")


def _uv(*words: str | Path) -> str:
    settings = bootstrap.pip_settings()
    if "--generate-hashes" in words:  # a folder beside the index may have some of the files only
        settings |= {"extra-index-url": "", "find-links": ""}
    else:
        settings["extra-index-url"] = bootstrap.name_indexes(settings)
    variables = bootstrap.for_uv(settings)
    if variables is None:
        raise UserError("pip has settings here that uv has not", "run it where pip has none")
    done = subprocess.run(
        [VENV / "bin" / "uv", *words, "--quiet", "--index-strategy", "unsafe-best-match"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        found = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UserError(f"uv failed: {' '.join(found)[:600]}", "loosen a limit in requirements/")
    return done.stdout


def changes(before: str, after: str) -> Iterator[str]:
    old, new = (
        dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)) for text in (before, after)
    )
    for name in sorted(old.keys() | new.keys(), key=str.lower):
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name, 'new')} -> {new.get(name, 'not needed any more')}"
