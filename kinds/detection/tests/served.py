"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

NAME = "detection"


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"DETECTION": "random"}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "detect", {"IMG": str(photo)}
