import pytest

from scripts.base.errors import UserError
from scripts.recipes.pipelines import find_pipeline


def test_places_are_not_written_to_a_file() -> None:
    places = find_pipeline("places").recipe
    places.require_asked(["photo.jpg"], {})
    with pytest.raises(UserError, match="OUT is given, which takes no answers of places_ensemble"):
        places.require_asked(["photo.jpg"], {"OUT": "answers.csv"})
