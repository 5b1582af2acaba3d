"""The search for settings: on servers of its own, and with nothing half done at the end."""

from pathlib import Path

import pytest

from scripts.measuring.perf_analyzer import has_libb64
from tests.project import Project, error_lines, interrupt, picture, wait_until

pytestmark = pytest.mark.rare

MINE = "# mine\nNETWORK_INSTANCES=1\n"


@pytest.fixture
def project(tmp_path: Path, exported: Path) -> Project:
    """Nothing is up; the .env wants fewer processes than suit any machine."""
    if not has_libb64():
        pytest.skip("no libb64 here, which perf_analyzer needs")
    made = Project.copy(tmp_path / "project", FLAVOUR="local", PRECISION="fp32", CORES="2")
    made.take(exported)
    (made.path / ".env").write_text(MINE)
    (tmp_path / "photo.jpg").write_bytes(picture())
    made.settings["IMAGES"] = str(tmp_path / "photo.jpg")
    return made


def nothing_is_left(project: Project) -> bool:
    return not project.temporary_servers() and not (project.path / "build" / "tune").exists()


def test_it_measures_beside_nobody_and_writes_the_winner_with_its_figures_or_nothing(
    project: Project,
) -> None:
    """Which of the two depends on the machine, and on what else is at work on it."""
    (line,) = error_lines(project.make("tune", MODEL="detection").stderr)
    assert "make tune measures the main pipeline alone; omit MODEL" in line
    project.made("up")
    began = project.server_began()
    (line,) = error_lines(project.make("tune", FLAVOUR="").stderr)
    assert "the running local server uses the cores" in line and "STOP=1" in line
    (line,) = error_lines(project.make("tune", FLAVOUR="", STOP="1", WEIGHTS="no.pth").stderr)
    assert "there is no weights file at " in line and "no.pth" in line
    assert project.server_began() == began
    try:
        output = project.made("tune", MINUTES="0.05", STOP="1", FLAVOUR="")
        assert (
            "flavour local: it serves" in output
            and "stopping the local server during the search" in output
        )
        assert project.server_began() != began
        project.made("status")
    finally:
        project.end()
    assert "network 1 x 2" in output and "answers per second at p95" in output
    env = (project.path / ".env").read_text()
    if "make up" in output:
        assert env.startswith("# mine\n# make tune: 20")
        assert "answers per second at p95" in env and "fp32" not in env
    else:
        assert env == MINE and ".env is unchanged" in output
    assert nothing_is_left(project)


def test_ctrl_c_leaves_the_settings_as_they_were(project: Project) -> None:
    make = project.start_make("tune")
    wait_until(project.temporary_servers, "a server to be tried")
    output = interrupt(make)
    assert "interrupted" in output and "Traceback" not in output
    assert (project.path / ".env").read_text() == MINE
    assert nothing_is_left(project)
