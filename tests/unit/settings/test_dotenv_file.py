"""What make writes into .env for `docker compose`, and what an upgrade changes there."""

from pathlib import Path

import pytest

from scripts.base.errors import UserError
from scripts.base.paths import MARK, ROOT
from scripts.settings import dotenv_file, settings
from scripts.settings.dotenv_file import FILE, NAME, project_name, write_for_compose


@pytest.fixture
def dotenv(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def test_the_name_is_the_checkouts_own_and_one_that_is_given_wins(dotenv: Path) -> None:
    own = f"{dotenv_file.folder_name()}-{MARK}"
    assert project_name({}, dotenv) == own
    assert project_name({NAME: "mine"}, dotenv) == "mine"
    dotenv.write_text(f"{NAME}=theirs\n")
    assert dotenv_file.name_by_make(dotenv) is None
    assert project_name({}, dotenv) == "theirs"
    assert project_name({NAME: "mine"}, dotenv) == "mine"
    # One that make wrote when the folder had another name.
    dotenv.write_text(f"{NAME}=moved-12345678{dotenv_file.BY_MAKE}\n")
    assert project_name({}, dotenv) == own
    assert dotenv_file.name_by_make(dotenv) == "moved-12345678"
    with pytest.raises(UserError, match="Not Mine"):
        project_name({NAME: "Not Mine"}, dotenv)


def test_lines_come_and_go_and_the_users_stay(dotenv: Path) -> None:
    write_for_compose("mine", ROOT / "build" / "run" / "compose.yaml", dotenv)
    content = dotenv.read_text()
    assert f"{NAME}=mine  #" in content and f"{FILE}=build/run/compose.yaml  #" in content
    write_for_compose(dotenv=dotenv)
    assert not dotenv.exists()

    users = f"# mine\nARCH=resnet18\n{FILE}=compose.yaml:more.yaml\n"
    dotenv.write_text(users)
    dotenv.chmod(0o600)
    write_for_compose("mine", ROOT / "build" / "run" / "compose.yaml", dotenv)
    assert dotenv.read_text().startswith(users) and f"{NAME}=mine" in dotenv.read_text()
    assert dotenv.read_text().count(FILE) == 1 and dotenv.stat().st_mode & 0o777 == 0o600
    write_for_compose(dotenv=dotenv)
    assert dotenv.read_text() == users


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# mine\nexport MOST_P99 = 3  # x\n", "# mine\nexport MAX_P99_RATIO = 3  # x\n"),
        ("MOST_P99=3\nMAX_P99_RATIO=4\n", "# MOST_P99=3\nMAX_P99_RATIO=4\n"),
        ("# MOST_P99=3\nMOST_P99_OF_MINE=1\n", "# MOST_P99=3\nMOST_P99_OF_MINE=1\n"),
    ],
)  # fmt: skip
def test_renamed_settings_are_carried_over(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dotenv_file, "DOTENV", tmp_path / ".env")
    assert dotenv_file.list_renamed() == {}
    (tmp_path / ".env").write_text(before)
    if before != after:
        assert dotenv_file.list_renamed() == {"MOST_P99": "MAX_P99_RATIO"}
        dotenv_file.rename()
        assert (tmp_path / ".env.before").read_text() == before
    assert (tmp_path / ".env").read_text() == after and dotenv_file.list_renamed() == {}


def test_settings_that_a_restore_put_aside_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dotenv_file, "DOTENV", tmp_path / ".env")
    (tmp_path / ".env").write_text("MOST_P99=3\n")
    (aside := tmp_path / ".env.before").write_text("FROM=birds.onnx\n")
    dotenv_file.rename()
    assert aside.read_text() == "FROM=birds.onnx\n" and not dotenv_file.list_renamed()


def test_the_names_of_today_are_settings() -> None:
    assert {*dotenv_file.RENAMED.values()} <= settings.ALL.keys()
    assert not {*dotenv_file.RENAMED} & settings.ALL.keys()


def test_a_link_stays_one(dotenv: Path) -> None:
    (users := dotenv.with_name("mine.env")).write_text("ARCH=resnet18\n")
    dotenv.symlink_to(users)
    write_for_compose("mine", dotenv=dotenv)
    assert dotenv.is_symlink() and f"{NAME}=mine" in users.read_text()
    users.write_text("")
    write_for_compose("mine", dotenv=dotenv)
    write_for_compose(dotenv=dotenv)
    assert dotenv.is_symlink() and users.read_text() == ""


def test_a_folder_is_refused(dotenv: Path) -> None:
    dotenv.mkdir()
    with pytest.raises(UserError, match=r"\.env is not text"):
        dotenv_file.read(dotenv)


@pytest.mark.parametrize(
    "value",
    [
        "/my photos/w.pth",
        "/run #1/w.pth",
        "/it's #2/w.pth",
        "'w'.pth",
        "#.pth",
        r"/a\b #'.pth",
        "3",
    ],
)
def test_what_is_written_is_read_again(dotenv: Path, value: str) -> None:
    dotenv.write_text("WEIGHTS=before\n")
    dotenv_file.change({"WEIGHTS": value, "CALIBRATION": value}, "make rollout: version 2", dotenv)
    assert dotenv_file.read(dotenv) == {"WEIGHTS": value, "CALIBRATION": value}


def test_what_begins_as_our_comments_do_and_is_none_stays() -> None:
    mine = "# make rollouts calm: the night shift wants ten seconds\nWATCH_SECONDS=10\n"
    written = dotenv_file.change_values(mine, {"ARCH": "resnet50"}, "make rollout: version 3")
    assert written.startswith(mine)
