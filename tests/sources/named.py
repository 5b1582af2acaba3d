"""Where a kind of pipeline or an extension is named outside of its folder, which may be absent."""

import subprocess
from pathlib import Path

from tests.project import ROOT, find_brought

FOLDERS = [str(path.parent.relative_to(ROOT)) for path in find_brought("*/__init__.py")]
# Compose cannot include what may be missing; touched.py passes over what is not there.
NAMED_IN = (
    *("compose.extra.yaml", "deploy", ".github/dependabot.yml"),
    *("tests/touched.py", "tests/unsteady.txt"),
)
# They lead to its page, which is then not there. And what is written from its settings.
LEAD_THERE = ("*.md", ".env.example")


def find_named(folder: str, root: Path = ROOT) -> list[str]:
    """The lines that name it, by its path or as a module."""
    name = rf"\b{folder.replace('/', '[./]')}\b"
    excepted = (f":!{each}" for each in (folder, *NAMED_IN, *LEAD_THERE))
    words = ("git", "grep", "--line-number", "--extended-regexp", name, "--", ".", *excepted)
    return subprocess.run(words, cwd=root, capture_output=True, text=True).stdout.splitlines()
