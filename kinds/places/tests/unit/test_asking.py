import io

import numpy as np
import pytest
from PIL import Image

from kinds.places.recipe import decode_file
from scripts.base.errors import UserError
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
