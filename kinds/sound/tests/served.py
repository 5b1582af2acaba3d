"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

from kinds.sound.tests.wav_files import BELL

NAME = "sounds"


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "classify", {"MODEL": NAME, "SOUND": str(BELL)}
