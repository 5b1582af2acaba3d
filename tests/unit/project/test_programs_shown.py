"""A program that a document shows is there, and takes what it is shown with."""

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.project import ROOT, find_brought
from tests.unit.project.test_touched import is_taken_out, tracked

# Alone in a line, or between backticks.
SHOWN = re.compile(r"(?:^ *|`)(?:\.venv/bin/)?python3? -m ([\w.]+)((?: [^`\n]*)?)", re.MULTILINE)
WRAPPED = re.compile(r"`([^`\n]+)\n *([^`\n]+)`")
CONTINUED = re.compile(r" *\\+\n *")
DOCSTRING = re.compile(r'\A"""(.*?)"""', re.DOTALL)
HOMES = ROOT, ROOT / "serving", ROOT / "client"
OURS = {path.name for home in HOMES for path in home.iterdir() if (path / "__init__.py").exists()}
ADDS = ("add", "parser.add_argument")


@dataclass
class Taken:
    """By the parser in a program's file; some have it elsewhere, or read their words themselves."""

    options: set[str] = field(default_factory=set)
    are_all_read: bool = True  # but for those whose names are made
    required: set[str] = field(default_factory=set)
    positional: int = 0


def list_shown() -> list[tuple[str, str, str]]:
    """Document or file, module, and what follows."""
    texts = {name: (ROOT / name).read_text() for name in tracked("*.md") if name != "CHANGELOG.md"}
    for name in tracked("benchmark", "client", "extensions", "kinds", "scripts", "serving"):
        if name.endswith(".py") and "python" in (text := (ROOT / name).read_text()):
            texts[name] = next(iter(DOCSTRING.findall(text)), "")
    joined = {
        name: WRAPPED.sub(r"`\1 \2`", CONTINUED.sub(" ", text)) for name, text in texts.items()
    }
    return [(name, *found) for name, text in joined.items() for found in SHOWN.findall(text)]


@cache
def find_program(module: str) -> Path | None:
    path = Path(*module.split("."))
    found = [
        *(home / path for home in HOMES),
        # Parts of bundle_serving, once they are in an image.
        *(each / path.name for each in find_brought("*/serving")),
    ]
    files = [each for at in found for each in (at / "__main__.py", at.with_suffix(".py"))]
    return next(filter(Path.is_file, files), None)


@cache
def read_taken(file: Path) -> Taken:
    taken, tree = Taken(), ast.parse(file.read_text())
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if ast.unparse(call.func) not in ADDS:
            continue
        names = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
        given = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
        taken.are_all_read &= len(names) == len(call.args)
        if [name for name in names if name.startswith("--")]:
            taken.options |= {*names}
            taken.required |= {names[0]} if given.get("required") else set()
        elif names and given.get("nargs") not in ("*", "?"):
            taken.positional += 1
    # Of the arguments of a function that is told by words (scripts/artefacts/exporting.py).
    if "start(main" in file.read_text():
        (main,) = (each for each in tree.body if getattr(each, "name", "") == "main")
        assert isinstance(main, ast.FunctionDef)
        words = [f"--{each.arg.replace('_', '-')}" for each in main.args.args]
        taken.options |= {*words}
        taken.required |= {*words[: len(words) - len(main.args.defaults)]}
    return taken


def find_fault(module: str, rest: str) -> str:
    if not (file := find_program(module)):
        return "is not there"
    words = re.split(r" {3}| #", rest.strip())[0].replace("[", "").replace("]", "").split()
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    taken = read_taken(file)
    if taken.are_all_read and taken.options and named - taken.options:
        return f"takes no {named - taken.options}"
    if "…" in words:
        return ""
    if missing := taken.required - named:
        return f"wants {missing}"
    return "wants more" if taken.positional and not words else ""


def test_programs_take_what_they_are_shown_with() -> None:
    shown = [
        (where, module, rest)
        for where, module, rest in list_shown()
        if module.split(".")[0] in OURS and not is_taken_out(f"{module}.".replace(".", "/"))
    ]
    assert len(shown) > 60
    faults = [(*each, fault) for each in shown if (fault := find_fault(*each[1:]))]
    assert faults == []


def test_benchmarks_end_in_a_line_where_a_user_can_help() -> None:
    unguarded = "raise " + "SystemExit(main("
    assert [path for path in tracked("*.py") if unguarded in (ROOT / path).read_text()] == []


def test_what_a_program_says_of_itself_is_a_whole_sentence() -> None:
    """`--help` shows the first line of its docstring, or its first paragraph."""
    sources = {path: (ROOT / path).read_text() for path in tracked("*.py")}
    first_lines = {
        path: (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        for path, source in sources.items()
        if re.search(r"=__doc__\b(?!\.split\()", source)
    }
    assert len(first_lines) > 5
    assert [path for path, line in first_lines.items() if not line.endswith((".", "?"))] == []
    # In a usage, argparse would read its per cent signs.
    assert [path for path, text in sources.items() if re.search(r"\(usage=_{2}doc__", text)] == []
