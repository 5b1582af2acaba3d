"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

NAME = "cascade"


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"CASCADE": request.getfixturevalue("served").settings["WEIGHTS"]}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "classify", {"IMG": str(photo), "MODEL": NAME}
