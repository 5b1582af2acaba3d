"""The README's commands, as a newcomer runs them: in a fresh folder, with nothing installed."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import ROOT, Project

pytestmark = pytest.mark.long

README = (ROOT / "README.md").read_text()


def blocks(heading: str, page: str = README) -> list[str]:
    """The indented lines of commands below a heading or a bold lead."""
    part = page.split(heading, 1)[1]
    part = re.split(r"\n## |\n\*\*", part, maxsplit=1)[0]
    return [line.strip() for line in part.replace("\\\n", "").splitlines() if line[:4] == "    "]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A fresh copy with nothing installed, no setting but free ports, and no Docker."""
    project = Project.bare(tmp_path_factory.mktemp("newcomer"), FLAVOUR="local")
    for name in ("ARCH", "WEIGHTS", "SAMPLES", "CA_BUNDLE", "STEPS"):
        project.settings.pop(name)
    yield project
    if (project.path / ".venv").exists():
        project.make("clean")


def test_the_two_commands_stand_there() -> None:
    assert blocks("## Without a network of yours") == ["make demo", "make test"]


def test_demo_answers_on_a_fresh_machine(newcomer: Project) -> None:
    output = newcomer.made("demo")
    assert "build/mug.jpg" in output
    assert "make classify IMG=" in output
    assert f"http://{newcomer.http}" in output
    (likeliest,) = re.findall(r"^  (.*mug) +(\d+)\.\d+%", output, re.MULTILINE)
    of_drawings = "knows drawings" in output
    assert likeliest[0] == ("drawn mug" if of_drawings else "coffee mug")
    assert int(likeliest[1]) > (80 if of_drawings else 20)


def test_the_picture_of_demo_can_be_classified(newcomer: Project) -> None:
    (command,) = blocks("## Your own picture")
    assert command == "make classify IMG=photo.jpg"
    (newcomer.path / "build" / "mug.jpg").rename(newcomer.path / "photo.jpg")
    assert "photo.jpg" in newcomer.made("classify", IMG="photo.jpg")


def test_the_curl_command_answers(newcomer: Project) -> None:
    (command,) = blocks("**Ask with nothing but curl.**")
    here = command.replace("localhost:8000", newcomer.http)
    done = subprocess.run(here, shell=True, cwd=newcomer.path, capture_output=True, check=True)
    likeliest = json.loads(done.stdout)["labels"]
    assert len(likeliest) == 3 and "mug" in likeliest[0]["label"]


def test_the_python_lines_answer(newcomer: Project) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    here = snippet.replace("localhost:8000", newcomer.http).replace('"photos/"', '"."')
    done = subprocess.run(
        [newcomer.path / ".venv" / "bin" / "python", "-c", here],
        cwd=newcomer.path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 4


def test_clean_leaves_what_git_knows(newcomer: Project) -> None:
    (newcomer.path / "photo.jpg").unlink()
    newcomer.made("clean")
    left = {
        str(Path(folder, name).relative_to(newcomer.path))
        for folder, _, names in os.walk(newcomer.path)
        for name in names
        if "__pycache__" not in folder
    }
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert left <= set(known) | {
        str(wheel.relative_to(ROOT)) for wheel in (ROOT / "docker/export/wheels").glob("*.whl")
    }
