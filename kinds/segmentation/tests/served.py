"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

NAME = "segmentation"


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"SEGMENTATION": "random"}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "segment", {"IMG": str(photo)}
