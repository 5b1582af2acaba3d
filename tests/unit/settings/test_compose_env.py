"""The project's name, and what make writes into .env for `docker compose`."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.base.errors import UserError
from scripts.base.paths import MARK, ROOT
from scripts.settings import compose_env
from scripts.settings.compose_env import FILE, NAME, project_name, write


@pytest.fixture
def dotenv(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def test_the_name_is_the_checkouts_own_and_one_that_is_given_wins(dotenv: Path) -> None:
    own = f"{compose_env.folder_name()}-{MARK}"
    assert project_name({}, dotenv) == own
    assert project_name({NAME: "mine"}, dotenv) == "mine"
    dotenv.write_text(f"{NAME}=theirs\n")
    assert project_name({}, dotenv) == "theirs"
    assert project_name({NAME: "mine"}, dotenv) == "mine"
    # One that make wrote when the folder had another name.
    dotenv.write_text(f"{NAME}=moved-12345678{compose_env.BY_MAKE}\n")
    assert project_name({}, dotenv) == own
    with pytest.raises(UserError, match="Not Mine"):
        project_name({NAME: "Not Mine"}, dotenv)


def test_lines_come_and_go_and_the_users_stay(dotenv: Path) -> None:
    write("mine", ROOT / "build" / "run" / "compose.yaml", dotenv)
    content = dotenv.read_text()
    assert f"{NAME}=mine  #" in content and f"{FILE}=build/run/compose.yaml  #" in content
    write(dotenv=dotenv)
    assert not dotenv.exists()

    users = f"# mine\nARCH=resnet18\n{FILE}=compose.yaml:more.yaml\n"
    dotenv.write_text(users)
    dotenv.chmod(0o600)
    write("mine", ROOT / "build" / "run" / "compose.yaml", dotenv)
    assert dotenv.read_text().startswith(users) and f"{NAME}=mine" in dotenv.read_text()
    assert dotenv.read_text().count(FILE) == 1 and dotenv.stat().st_mode & 0o777 == 0o600
    write(dotenv=dotenv)
    assert dotenv.read_text() == users
