"""The pictures of the documents show what there is."""

import ast
import html
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from bundle_door.documents import find_files
from tests.drawn_pictures import DRAWN, PICTURES, WORDS, read_ratios
from tests.project import ROOT, find_brought

# Of the page, in a browser.
TAKEN = [*sorted(PICTURES.glob("*.png")), *find_brought("*/page.png")]
# Of what commands say in a terminal.
SOURCES = ("scripts", "kinds", "extensions", "serving")


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_of_the_documents_is_up_to_date(name: str) -> None:
    assert (PICTURES / name).read_text() == DRAWN[name](), "python -m tests.drawn_pictures"


def test_the_comparison_shows_its_table() -> None:
    found = read_ratios()
    assert found.keys() == {"8.5 MP", "500x375"}
    names = ["textbook", "fastapi", "litserve", "bentoml", "mosec"]
    assert all([each.name for each in ratios] == names for ratios in found.values())
    assert all(each.low <= each.median <= each.high for each in found["8.5 MP"])


@cache
def nodes() -> list[ast.AST]:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    return [each for path in files for each in ast.walk(ast.parse(path.read_text()))]


def known_pairs() -> set[tuple[str, str]]:
    """Of words that follow one another in a text of the sources."""
    texts = (each.value for each in nodes() if isinstance(each, ast.Constant))
    return {pair for text in texts if isinstance(text, str) for pair in pairs(text)}


def find_beside_values() -> set[str]:
    """Words before or after what is filled in, which may be a word too: f"asking {name} itself"."""
    found = set[str]()
    for node in nodes():
        for one, other in pairwise(node.values if isinstance(node, ast.JoinedStr) else []):
            for text, place in ((one, -1), (other, 0)):
                words = str(text.value).split() if isinstance(text, ast.Constant) else []
                found |= set(words[place:][:1])
    return found


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and figures, which are filled in, stand between others."""
    for part in re.split(r"[^\w\s'/.-]|\S*[\d_/.=]\S*", text):
        yield from pairwise(part.split())


@pytest.mark.parametrize("picture", TAKEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_page_says_what_its_pictures_show(picture: Path) -> None:
    """Whoever changes its words makes the pictures again: python -m tests.readme_pictures"""
    with Image.open(picture) as opened:
        words = opened.info[WORDS].splitlines()
    assert "refused" in words and len(words) > 8
    sources = "".join(
        path.read_text() for path in find_files().values() if path.suffix in (".html", ".js")
    )
    assert not [each for each in words if each not in sources]


def lines_of(path: Path) -> list[str]:
    """Of a terminal, row by row; what goes on in the next row is one line."""
    rows: dict[float, str] = {}
    for y, text in re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>([^<]*)</text>', path.read_text()):
        rows[float(y)] = rows.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
    lines: list[str] = []
    for _, text in sorted(rows.items()):
        if text.startswith("  ") and lines and lines[-1].startswith("- "):
            lines[-1] += f" {text.strip()}"
        else:
            lines.append(text.rstrip())
    return lines


def test_the_terminal_says_what_the_commands_say() -> None:
    """Whoever changes their words makes the picture again: python -m tests.readme_pictures"""
    notes = [line[2:] for line in lines_of(PICTURES / "terminal.svg") if line.startswith("- ")]
    assert len(notes) > 5
    found = {pair for note in notes for pair in pairs(note)}
    assert len(found) > 20
    beside = find_beside_values()
    assert not [pair for pair in found - known_pairs() if not beside & {*pair}]
