"""The verbs, read from the Makefile and the files that it includes: their help, the layers of
requirements that they need, and the modules that they run. Stdlib only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scripts.base import parts
from scripts.base.errors import UserError
from scripts.base.paths import ROOT

# What the tests and the linters of a checkout are for is in no package.
OF_CHECKOUTS = "Work on the bundle"
# These are answered by the program itself.
OF_PROGRAM = ("help", "version")

_VARIABLE = re.compile(r"(\w+) := (.*)")
_RULE = re.compile(r"([a-z0-9-]+):(?!=)([^#]*)(?:##([+]?) (.*))?")
_STEP = re.compile(r"\t\$\(RUN\) (.*)")
_UNLESS_THERE = re.compile(r"\$\(if \$\(wildcard \S+\),,(\S+)\)")
_LAYERS = ".venv/layers/"


@dataclass
class Verb:
    name: str
    part: str = ""
    about: str = ""
    is_first: bool = False
    needs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The one that does the work, behind scripts.commands and its options."""
        return parts.name_command(next(word for word in self.words[1:] if word[:2] != "--"))

    def describe(self) -> str:
        """The docstring of what it runs."""
        for home in parts.list_homes() if self.words else ():
            path = home.parent.joinpath(*self.module.split("."))
            file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
            if file.is_file():
                with parts.name_faults(str(file)):
                    return ast.get_docstring(ast.parse(file.read_text())) or ""
        return ""


def read() -> dict[str, Verb]:
    """Those that a package has: with a line of help, and what these need."""
    return {
        name: verb
        for name, verb in read_all().items()
        if (verb.words or verb.needs) and name not in OF_PROGRAM and verb.part != OF_CHECKOUTS
    }


def read_all() -> dict[str, Verb]:
    verbs: dict[str, Verb] = {}
    variables: dict[str, str] = {"LAYER": _LAYERS.rstrip("/")}
    for file in (ROOT / "Makefile", *parts.find_files(parts.list_homes(), "commands.mk")):
        brought: dict[str, Verb] = {}
        with parts.name_faults(str(file)):
            _read_lines(file.read_text().splitlines(), brought, variables)
        for name in brought.keys() & verbs.keys():
            raise UserError(f"{file} has a command '{name}', which there is already", "rename it")
        verbs |= brought
    return verbs


def group(verbs: Iterable[Verb], everything: bool) -> dict[str, list[Verb]]:
    """By parts of the help: those of the first weeks, or all."""
    parts: dict[str, list[Verb]] = {}
    for verb in verbs:
        if verb.about and (verb.is_first or everything):
            parts.setdefault(verb.part, []).append(verb)
    return parts


def _read_lines(lines: Iterable[str], verbs: dict[str, Verb], variables: dict[str, str]) -> None:
    part, current = "", None
    for line in lines:
        if line.startswith("##@ "):
            part = line[4:]
        elif found := _VARIABLE.fullmatch(line):
            variables[found[1]] = found[2]
        elif found := _RULE.fullmatch(line):
            current = verbs.setdefault(found[1], Verb(found[1]))
            current.part, current.about = part, found[4] or ""
            current.is_first = bool(found[4]) and not found[3]
            if part != OF_CHECKOUTS:
                current.needs = tuple(_expand(found[2], variables).split())
        elif (found := _STEP.fullmatch(line)) and current:
            current.words = (parts.COMMANDS, *found[1].split())


def _expand(text: str, variables: dict[str, str]) -> str:
    while found := re.search(r"\$\((\w+)\)", text):
        text = text.replace(found[0], variables.get(found[1], ""))
    # What make leaves out once a layer is there is cheap enough to do always.
    return _UNLESS_THERE.sub(r"\1", text)


def list_steps(verb: Verb, verbs: Mapping[str, Verb]) -> Iterator[str | Verb]:
    """What make would do, in its order: install layers, given by name, and run verbs, the last of
    them this one."""
    for need in verb.needs:
        if need.startswith(_LAYERS):
            yield need.removeprefix(_LAYERS)
        elif need in verbs:
            yield from list_steps(verbs[need], verbs)
        else:
            raise UserError(f"{verb.name} needs {need}, which is no target", "omit or add it")
    if verb.words:
        yield verb
