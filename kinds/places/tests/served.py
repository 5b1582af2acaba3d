"""How this kind's pipeline is brought to a server and asked: tests.pipelines.Served."""

from pathlib import Path

import pytest

from kinds.places.tests.by_pytorch import CHECKPOINT, checkpoint_of_places
from tests.plugin import once

NAME = "places"


def weights(request: pytest.FixtureRequest) -> Path:
    with once(request.getfixturevalue("tmp_path_factory"), "places") as folder:
        if not folder.exists():
            folder.mkdir()
            checkpoint_of_places(folder)
    return folder / CHECKPOINT


def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"PLACES": str(weights(request))}


def question(photo: Path) -> tuple[str, dict[str, str]]:
    return "classify", {"IMG": str(photo), "MODEL": NAME}
