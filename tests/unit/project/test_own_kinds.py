"""What a kind of pipeline of the user's own brings is found as what the project's kinds bring."""

import subprocess
from pathlib import Path

import pytest

from scripts.settings import documents
from tests.project import ROOT, Project, error_lines

MENDED = "; correct it; docs/own_kind.md says what is read"
TAKES = """
TAKEN = "a sum (.sum)"

def takes(path):
    return path.suffix == ".sum"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("own-kind"))
    made.add_own_kind()
    return made


@pytest.fixture
def kind(project: Project) -> Path:
    return project.path / "own" / "kinds" / "sum"


def program(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    path = ":".join(str(project.path / each) for each in ("", "serving", "client"))
    words = ("-m", "scripts.program", "--folder", ".", *words)
    return project.run_command(".venv/bin/python", *words, PYTHONPATH=path)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    assert done.returncode and len(lines) == 1, done.stderr
    return lines[0].removeprefix("error: ")


def test_its_command_and_setting_work(project: Project) -> None:
    assert "make sum " in project.made("help", ALL="1")
    told = program(project, "help", "sum").stdout
    assert "\n  SUM_UNIT      What `triton-bundle sum` divides by.\n" in told
    for said in (project.make("sum", "SUM_UNIT=0"), program(project, "sum", "SUM_UNIT=0")):
        assert "SUM_UNIT=0 must be a positive integer" in refused(said)
    for said in (project.make("sum", "SUM_UNITS=2"), program(project, "sum", "SUM_UNITS=2")):
        assert refused(said) == "unknown setting SUM_UNITS; did you mean SUM_UNIT?"
    assert "no picture given" in refused(project.make("sum"))


def test_in_dotenv_too_which_may_name_another_folder(project: Project, tmp_path: Path) -> None:
    dotenv, own = project.path / ".env", project.path / "own"
    dotenv.write_text(f'OWN="{tmp_path / "mine"}"\nSUM_UNIT=0\n')
    own.rename(tmp_path / "mine")
    try:
        for said in (project.make("sum"), program(project, "sum", "IMG=a.jpg")):
            assert "SUM_UNIT=0 must be a positive integer" in refused(said)
    finally:
        dotenv.unlink()
        (tmp_path / "mine").rename(own)


def test_its_settings_are_in_no_document_of_the_projects(project: Project) -> None:
    here = {"PYTHONPATH": f"{project.path}:{project.path / 'serving'}"}
    done = project.run_command(".venv/bin/python", "-m", "scripts.settings.documents", **here)
    assert done.returncode == 0, done.stderr
    for document in (documents.EXAMPLE, documents.PAGE):
        written = project.path / document.relative_to(ROOT)
        assert written.read_text() == document.read_text()


def test_what_it_takes_can_be_added(project: Project, kind: Path, tmp_path: Path) -> None:
    (kind / "adoption.py").write_text(TAKES)
    (tmp_path / "a.sum").touch()
    (tmp_path / "a.bin").touch()
    others = {"NAME": "a", "ARCH": "", "WEIGHTS": ""}
    add = project.make("add-model", FROM=str(tmp_path / "a.bin"), **others)
    assert "a sum (.sum), " in refused(add)
    add = project.make("add-model", FROM=str(tmp_path / "a.sum"), **others)
    lacks = "module 'kinds.sum.adoption' has no attribute 'make_recipe'"
    assert refused(add) == f"{kind}/adoption.py: AttributeError: {lacks}{MENDED}"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("def\n", ": SyntaxError: invalid syntax (settings.py, line 4)" + MENDED),
        ("import nothing\n", ":4: ModuleNotFoundError: No module named 'nothing'" + MENDED),
        ("arch = sum_unit\n", ": ARCH is a setting already; give it another name"),
    ],
)
def test_what_is_wrong_is_one_line(project: Project, kind: Path, more: str, why: str) -> None:
    file = kind / "settings.py"
    kept = file.read_text()
    try:
        file.write_text(kept + more)
        makes = map(project.make, ("status", "torture"))
        for said in (*makes, program(project, "status")):
            assert refused(said) == f"{file}{why}"
    finally:
        file.write_text(kept)


def test_what_goes_wrong_in_a_command_is_one_line(project: Project, kind: Path) -> None:
    file = kind / "recipe.py"
    kept = file.read_text()
    (project.path / "a.jpg").write_bytes(b"a")
    try:
        file.write_text(f"{kept}\nSum.require_asked = lambda *_: 1 / 0\n")
        line = refused(project.make("sum", "IMG=a.jpg"))
        number = len(kept.splitlines()) + 2
        assert line == f"{file}:{number}: ZeroDivisionError: division by zero{MENDED}"
    finally:
        file.write_text(kept)


READS_PROGRAMS = """
from scripts.base.errors import UserError
from scripts.repository.model_folders import programs
try:
    print(*dict(programs("adder")))
except UserError as fault:
    print(fault)
"""


def test_its_programs_bring_what_they_share(project: Project, kind: Path) -> None:
    here = {"PYTHONPATH": f"{project.path}:{project.path / 'serving'}"}

    def read() -> str:
        return project.run_command(".venv/bin/python", "-c", READS_PROGRAMS, **here).stdout

    assert read() == "page/sum.js totals.py model.py\n"
    shared = kind / "serving" / "totals.py"
    kept = shared.read_text()
    shared.write_text("def\n")
    assert read().startswith(f"{shared}: SyntaxError: invalid syntax (totals.py, line 1)")
    shared.write_text(kept)


def test_its_commands_are_called_as_none_of_the_projects(project: Project, kind: Path) -> None:
    file = kind / "commands.mk"
    kept = file.read_text() if file.exists() else ""
    try:
        file.write_text(f"{kept}\nup: ## Mine\n\techo mine\n")
        cause = f"{file} has a command 'up', which there is already; rename it"
        assert refused(program(project, "status")) == cause
        assert error_lines(project.make("help").stderr)[-1].endswith(cause)
        assert "echo mine" not in project.made("-n", "up")
    finally:
        file.write_text(kept)


def test_it_is_called_as_none_of_the_projects(project: Project, kind: Path) -> None:
    file = kind.with_name("image") / "settings.py"  # the one that cannot be taken out
    file.parent.mkdir()
    file.touch()
    assert refused(project.make("status")).startswith(f"{file.parent} is called as a kind of the ")
    file.unlink()
    file.parent.rmdir()
