"""A setting of the door is one entry of one list."""

from pathlib import Path

from scripts.settings import documents
from tests.project import ROOT, Project

ONE_MORE = """
SETTINGS += (Setting("SHINE", "7", read_count, "a positive integer", "How much it shines."),)
"""


def test_a_new_one_is_one_edit(tmp_path: Path) -> None:
    project = Project.copy(tmp_path / "one")
    entries = project.path / "serving" / "bundle_door" / "settings.py"
    entries.write_text(entries.read_text() + ONE_MORE)
    here = {"PYTHONPATH": f"{project.path}:{project.path / 'serving'}"}
    python = ".venv/bin/python"
    written = project.run_command(python, "-m", "scripts.settings.documents", **here)
    assert written.returncode == 0, written.stderr
    for path in (documents.EXAMPLE, documents.PAGE, *documents.FOR_CONTAINERS):
        assert "SHINE" in (project.path / path.relative_to(ROOT)).read_text(), path
    assert "--shine" in project.run_command(python, "-m", "bundle_door", "--help", **here).stdout
    code = "from scripts.settings.settings import *; print(Settings.load()['SHINE'], names(DOOR))"
    known = project.run_command(python, "-c", code, **here).stdout
    assert known.startswith("7 ") and "'SHINE'" in known


def test_the_files_of_containers_are_as_the_list_says() -> None:
    for path in documents.FOR_CONTAINERS:
        assert path.read_text() == documents.of_the_door(path), path
