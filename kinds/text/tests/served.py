"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

NAME = "sentiment"


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"SENTIMENT": "minilm"}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "sentiment", {"TEXT": "I love this place!"}
