import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle_client import SourceError
from kinds.places.recipe import decode_file
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.measuring.photos import choose_inputs
from scripts.recipes.pipelines import find_pipeline


def test_places_are_not_written_to_a_file() -> None:
    places = find_pipeline("places").recipe
    places.require_asked(["photo.jpg"], {})
    with pytest.raises(UserError, match="OUT is given, which takes no answers of places_ensemble"):
        places.require_asked(["photo.jpg"], {"OUT": "answers.csv"})


@pytest.mark.parametrize(
    ("picture", "level"),
    [
        (Image.fromarray(np.full((4, 5), 20_000, np.uint16)), 78),
        (Image.new("RGBA", (5, 4), (90, 20, 10, 0)), 255),
    ],
)
def test_a_picture_is_sent_as_it_is_seen_elsewhere(picture: Image.Image, level: int) -> None:
    picture.save(file := io.BytesIO(), "PNG")
    found = decode_file(file.getvalue())
    assert found.shape == (4, 5, 3) and (found == level).all()


def test_a_picture_that_is_damaged() -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(file, "AVIF")
    whole = file.getvalue()
    assert decode_file(whole).shape == (64, 64, 3)
    with pytest.raises(SourceError, match="not a readable picture"):
        decode_file(whole.replace(b"iloc", b"ilox"))


def test_requests_that_are_too_large_to_be_measured(tmp_path: Path) -> None:
    """A photo has 36 MB of numbers."""
    Image.new("RGB", (2048, 1536)).save(tmp_path / "photo.png")
    places = find_pipeline("places").recipe
    with pytest.raises(UserError, match="more than 32 MB together"):
        choose_inputs(places, Workspace(tmp_path), str(tmp_path))
