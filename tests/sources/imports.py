"""What a program imports, and in which layers of requirements/ it does so: read off the sources.

A module that is reached is reached in some set of layers: those of the make command, and those that
a function on the way has ensured before it imports.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.base import layers as of_environment
from scripts.base import parts
from tests.project import ROOT

Layers = frozenset[str]

HOMES = (ROOT, ROOT / "serving", ROOT / "client")
OURS = (
    "extensions",
    "kinds",
    "scripts",
    "benchmark",
    "bundle_door",
    "bundle_keeper",
    "bundle_serving",
    "bundle_client",
    "tests",
)
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
    layers = re.findall(r"scripts\.bootstrap ([\w ]+)", lines)
    program = re.search(r"-m scripts\.commands (?:--\S+ )*([\w.]+)(?!\S)", lines)
    installed = frozenset(" ".join(layers).split())
    if program is None:
        return None
    module = parts.name_command(program[1])
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
    of_the_module, *of_functions = _marks(here.module, path)
    # What a step imports in its functions is there where it runs as a program of its own.
    of_steps = here.module.startswith(("scripts.steps.", "kinds.", "extensions."))
    a_step = of_steps and '"__main__"' in path.read_text()
    for marks in (of_the_module, *(() if a_step and not here.program else of_functions)):
        layers = here.layers
        for mark in marks:
            if mark.what == "ensured":
                layers |= {mark.name}
            else:
                yield mark.name, layers, mark.line, mark.what == "run"


@dataclass(frozen=True)
class Mark:
    """What stands in a source: a module that is imported or run, or a layer that is ensured."""

    name: str
    line: int
    what: Literal["imported", "run", "ensured"]


@cache
def _marks(module: str, path: Path) -> list[list[Mark]]:
    """In the order of lines: those of the module itself, and then of each function."""
    tree = ast.parse(path.read_text())
    functions = (each for each in ast.walk(tree) if isinstance(each, FUNCTIONS))
    found = [[*_in_scope(scope, module, path)] for scope in (tree, *functions)]
    return [sorted(marks, key=lambda mark: mark.line) for marks in found]


def _in_scope(scope: ast.AST, module: str, path: Path) -> Iterator[Mark]:
    for node in _nodes(scope):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "bootstrap.ensure":
            yield Mark(_literal(node, path), node.lineno, "ensured")
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _named(node, module, path):
                yield Mark(name, node.lineno, "imported")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            runs = re.fullmatch(r"(scripts|benchmark|bundle_client|extensions)(\.\w+)*", node.value)
            if runs and _path(node.value):
                yield Mark(node.value, node.lineno, "run")


def _nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions in it, and of what is there for the type check alone."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, FUNCTIONS):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "Step":
            continue  # a stack runs it, where it has its packages
        yield child
        yield from _nodes(child)


def _literal(ensure: ast.Call, path: Path) -> str:
    (layer,) = ensure.args
    if isinstance(layer, ast.Constant):
        return str(layer.value)
    return f"whatever {ast.unparse(layer)} is ({path.name})"


def _named(node: ast.Import | ast.ImportFrom, module: str, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    package = module.split(".")[: -1 if path.name != "__init__.py" else None]
    above = package[: len(package) - node.level + 1] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    yield base
    if base.partition(".")[0] in OURS:
        yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def installed(layers: Layers) -> frozenset[str]:
    """The packages that pip brings for these layers, of those that this environment holds."""
    names = {name for layer in layers for name in of_environment.find_included(layer)}
    files = [file for file in of_environment.list_resolved() if file.stem in names]
    ahead = [(line, extra) for file in files for line in _lines(file) for extra in _extras(line)]
    found: set[tuple[str, str]] = set()
    while ahead:
        wanted, extra = ahead.pop()
        name = canonicalize_name(wanted.name)
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for needed in _needs(name):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                ahead += [(needed, each) for each in _extras(needed)]
    return frozenset(name for name, _ in found)


@cache
def _needs(package: str) -> list[Requirement]:
    return [*map(Requirement, metadata.requires(package) or ())]


def _extras(wanted: Requirement) -> set[str]:
    return {"", *wanted.extras}


def _lines(file: Path) -> Iterator[Requirement]:
    for line in file.read_text().splitlines():
        requirement = line.partition("#")[0].strip()
        if requirement and not requirement.startswith("-r"):
            yield Requirement(requirement)


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
