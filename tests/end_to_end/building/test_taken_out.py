"""Each kind of pipeline and each extension can be taken out: the rest is checked, served and asked
as before, and does not name it."""

import re
import shutil
from pathlib import Path

import pytest

from scripts.recipes.schema import load
from tests.project import ROOT, Project, picture, run
from tests.sources import named


@pytest.mark.rare
@pytest.mark.parametrize("folder", named.FOLDERS)
def test_the_rest_does_without(folder: str, tmp_path: Path, exported: Path) -> None:
    project = Project.copy(tmp_path / "rest", FLAVOUR="local")
    commands = list_commands(project.path / folder / "commands.mk")
    for path in [project.path / folder, *find_models(project, folder)]:
        shutil.rmtree(path)
    for words in (["init", "-q"], ["add", "-A"]):
        run("git", "-C", str(project.path), *words)
    # Else .venv, which is this checkout's, would bring its server and client.
    project.settings["PYTHONPATH"] = f"{project.path / 'serving'}:{project.path / 'client'}"
    for words in (["scripts.settings.documents"], ["tests.promised", "--released"]):
        write = project.run_command(".venv/bin/python", "-m", *words)
        assert write.returncode == 0, write.stderr

    assert named.find_named(folder, project.path) == []
    shown = project.made("help", ALL="1")
    assert [each for each in commands if re.search(rf"make {each}\b", shown)] == []
    project.made("check")
    project.take(exported)
    (photo := tmp_path / "noise.jpg").write_bytes(picture())
    try:
        project.made("up")
        assert project.made("classify", IMG=str(photo))
    finally:
        project.end()


def find_models(project: Project, folder: str) -> list[Path]:
    """Those of its model folders that are not in it."""
    recipes = (load(path) for path in (ROOT / folder).glob("*.yaml"))
    names = (name for recipe in recipes for name in recipe.model_names.values())
    own = (project.path / "model_repository" / name for name in names)
    return [path for path in own if path.is_dir()]


def list_commands(makefile: Path) -> list[str]:
    text = makefile.read_text() if makefile.exists() else ""
    return re.findall(r"^([a-z0-9-]+):.*##", text, re.MULTILINE)
