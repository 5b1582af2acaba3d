"""Installs a layer of requirements, each file checked by its hash. Stdlib only; image builds run
this file alone:

    python3 wheels.py REQUIREMENTS LAYER… [options of pip install]
    python3 wheels.py REQUIREMENTS --beside NAME…     leaves what is installed as it is

REQUIREMENTS/locked has a list for each layer, of all that it brings along, and hashes.txt. PyTorch
is pinned by its version alone: its own index has builds that PyPI has not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

WITHOUT_HASH = ("torch", "torchvision")


class NoHash(Exception):
    """A package that may not be installed; the message says why and what to do."""


def name_of(text: str) -> str:
    """As indexes write it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def hashes(requirements: Path) -> dict[str, list[str]]:
    """By name==version."""
    found: dict[str, list[str]] = {}
    for line in (requirements / "locked" / "hashes.txt").read_text().splitlines():
        if match := re.match(r"([\w.-]+)==([^\s;\\]+)", line):
            found[f"{name_of(match[1])}=={match[2]}"] = current = []
        elif match := re.match(r"\s+--hash=(\S+)", line):
            current.append(match[1])
    return found


def read_locked(requirements: Path, *layers: str) -> list[str]:
    """The lines of these layers' lists: name==version, and where that is for."""
    lines = ((requirements / "locked" / f"{layer}.txt").read_text() for layer in layers)
    return sorted(
        {line for text in lines for line in text.splitlines() if line[:1] not in ("#", "")}
    )


@contextmanager
def write_checked(lines: Iterable[str], requirements: Path) -> Iterator[tuple[Path, list[str]]]:
    """A file of requirements with hashes, and those that have none."""
    known, hashed, without = hashes(requirements), [], []
    for line in lines:
        name, version, marker = parts(line)
        if name in WITHOUT_HASH:
            without.append(line)
        elif found := known.get(f"{name}=={version}"):
            hashed.append(" ".join([f"{name}=={version}{marker}", *(f"--hash={e}" for e in found)]))
        else:
            raise NoHash(
                f"{line} has no hash in requirements/locked/hashes.txt; write it: make pins"
            )
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(hashed) + "\n")
        file.flush()
        yield Path(file.name), without


def parts(line: str) -> tuple[str, str, str]:
    """Name, version, and marker with its semicolon."""
    found = re.fullmatch(r"([\w.-]+)==([^\s;+]+)(?:\+\w+)?(\s*;.*)?", line.strip())
    if not found:
        raise NoHash(f"{line} is not name==version; write the lists again: make pins")
    return name_of(found[1]), found[2], found[3] or ""


def resolve_beside(pip: list[str], requirements: Path, names: list[str]) -> list[str]:
    """What pip would add for these names: in the pinned versions, but for what is installed, which
    counts in any version that is good enough."""
    pins = (requirements / "constraints.txt").read_text().splitlines(keepends=True)
    stay = {name_of(each.metadata["Name"]) for each in distributions()} - {*names}
    known = hashes(requirements)
    while True:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
            versions.writelines(pin for pin in pins if name_of(pin.partition("==")[0]) not in stay)
            versions.flush()
            asked = [*pip, "install", "--dry-run", "--quiet", "--report", "-"]
            asked += ["-c", versions.name, *names]
            report = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True).stdout
        found = [each["metadata"] for each in json.loads(report)["install"]]
        lines = [f"{name_of(each['name'])}=={each['version']}" for each in found]
        not_enough = {line.partition("==")[0] for line in lines if line not in known} & stay
        if not not_enough:
            return lines
        stay -= not_enough


def does_answer(index: str, trusted: str | None = None) -> bool:
    """An index of PyTorch, also by asking for a password: urllib takes none in an address."""
    import http.client
    import ssl
    import urllib.error
    import urllib.request  # slow to import, and seldom needed

    address = re.sub("//[^/]*@", "//", index)
    try:
        context = ssl.create_default_context(cafile=trusted)
        urllib.request.urlopen(f"{address}/torch/", timeout=5, context=context).close()
    except urllib.error.HTTPError as fault:
        return fault.code == 401
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def main() -> int:
    requirements, words = Path(sys.argv[1]), sys.argv[2:]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    layers, options = words[:first], words[first:]
    try:
        if options[:1] == ["--beside"]:
            lines, options = resolve_beside(pip, requirements, options[1:]), []
        else:
            lines = read_locked(requirements, *layers)
        with write_checked(lines, requirements) as (file, without):
            install = [*pip, "install", "--no-compile", *options]
            subprocess.run([*install, "--no-deps", "--require-hashes", "-r", str(file)], check=True)
            if without:
                subprocess.run([*install, *without], check=True)
    except subprocess.CalledProcessError as fault:
        return fault.returncode
    except NoHash as fault:
        sys.exit(f"error: {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
