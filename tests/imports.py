"""What a program imports, and in which layers of requirements/ it does so: read off the sources.

A module that is reached is reached in some set of layers: those of the make command, and those that
a function on the way has ensured before it imports.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.bootstrap import APART
from tests.project import ROOT

Layers = frozenset[str]

HOMES = (ROOT, ROOT / "serving", ROOT / "client")
OURS = ("scripts", "benchmark", "bundle_door", "bundle_serving", "bundle_client", "tests")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Reached:
    """A module in the environment that it is imported in; a program also runs its functions."""

    module: str
    layers: Layers
    program: bool = False


@dataclass(frozen=True)
class Import:
    name: str
    layers: Layers
    where: str


def of_make(target: str) -> Reached | None:
    """The program behind a make command, and the layers that are installed for it; None where it
    runs none of ours."""
    lines = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    layers = re.findall(r"bootstrap\.py ([\w ]+)", lines)
    program = re.search(r"-m (scripts\.commands) (\w+)|-m (benchmark)\.(\w+)", lines)
    installed = frozenset(" ".join(layers).split())
    if program is None:
        return None
    module = ".".join(filter(None, program.groups()))
    assert _path(module), module
    return Reached(module, installed, program=True)


def follow(*starts: Reached, and_run: bool = True) -> tuple[set[Reached], set[Import]]:
    """All of our modules that these import (and run as programs of their own), and what is imported
    of others on the way."""
    reached: set[Reached] = set()
    others: set[Import] = set()
    ahead = list(starts)
    while ahead:
        here = ahead.pop()
        if here in reached or (path := _path(here.module)) is None:
            continue
        reached.add(here)
        for name, layers, line, program in _found(here, path):
            if name.partition(".")[0] in OURS:
                ahead += [Reached(name, layers, program)] if and_run or not program else []
            elif name.partition(".")[0] not in sys.stdlib_module_names:
                others.add(Import(name, layers, f"{path.relative_to(ROOT)}:{line}"))
    return reached, others


@cache
def _path(module: str) -> Path | None:
    for home in HOMES:
        base = home / module.replace(".", "/")
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def _found(here: Reached, path: Path) -> Iterator[tuple[str, Layers, int, bool]]:
    tree = _parsed(path)
    functions = (each for each in ast.walk(tree) if isinstance(each, FUNCTIONS))
    # What a step imports in its functions is there where it runs as a program of its own.
    a_step = here.module.startswith("scripts.steps.") and '"__main__"' in path.read_text()
    for scope in (tree, *(() if a_step and not here.program else functions)):
        yield from _in_scope(scope, here, path)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _in_scope(scope: ast.AST, here: Reached, path: Path) -> Iterator[tuple[str, Layers, int, bool]]:
    layers = here.layers
    for node in sorted(_nodes(scope), key=lambda each: getattr(each, "lineno", 0)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "bootstrap.ensure":
            layers |= {_literal(node, path)}
        for name in _named(node, here.module, path):
            yield name, layers, node.lineno, False  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            runs = re.fullmatch(r"(scripts|benchmark|bundle_client)(\.\w+)*", node.value)
            if runs and _path(node.value):
                yield node.value, layers, node.lineno, True


def _nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions in it, and of what is there for the type check alone."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, FUNCTIONS):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _nodes(child)


def _literal(ensure: ast.Call, path: Path) -> str:
    (layer,) = ensure.args
    if isinstance(layer, ast.Constant):
        return str(layer.value)
    return f"whatever {ast.unparse(layer)} is ({path.name})"


def _named(node: ast.AST, module: str, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module.split(".")[: -1 if path.name != "__init__.py" else None]
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *filter(None, [node.module])])
        yield base
        if base.partition(".")[0] in OURS:
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def installed(layers: Layers) -> frozenset[str]:
    """The packages that pip brings for these layers, of those that this environment holds."""
    files = [ROOT / "requirements" / f"{layer}.txt" for layer in layers - {*APART}]
    ahead = [(line, extra) for file in files for line in _lines(file) for extra in _extras(line)]
    found: set[tuple[str, str]] = set()
    while ahead:
        wanted, extra = ahead.pop()
        name = canonicalize_name(wanted.name)
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for needed in map(Requirement, metadata.requires(name) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                ahead += [(needed, each) for each in _extras(needed)]
    return frozenset(name for name, _ in found)


def _extras(wanted: Requirement) -> set[str]:
    return {"", *wanted.extras}


def _lines(file: Path) -> Iterator[Requirement]:
    for line in file.read_text().splitlines():
        said = line.partition("#")[0].strip()
        if said.startswith("-r"):
            yield from _lines(file.parent / said.removeprefix("-r").strip())
        elif said:
            yield Requirement(said)


@cache
def packages_with(module: str) -> frozenset[str]:
    return frozenset(map(canonicalize_name, _packages().get(module.partition(".")[0], ())))


@cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def missing(imports: set[Import]) -> list[str]:
    """What no package of its layers has, a line each."""
    return sorted(
        f"{each.where}: {each.name} is not in {' + '.join(sorted(each.layers))}"
        for each in imports
        if installed(each.layers).isdisjoint(packages_with(each.name))
    )
