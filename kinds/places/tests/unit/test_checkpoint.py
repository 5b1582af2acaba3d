"""What is read beside the checkpoint of Places365."""

from pathlib import Path

import pytest

from kinds.places.export import CATEGORIES, Checkpoint, categories_beside, names
from scripts.base.errors import NoWeights, UserError


def checkpoint(weights: str, classes: int = 2) -> Checkpoint:
    how: dict[str, object] = {"side": 256}
    return Checkpoint(
        "torchvision/resnet50", weights, classes, how, categories=categories_beside(weights)
    )


def test_names_are_read_beside_the_checkpoint(tmp_path: Path) -> None:
    weights = str(tmp_path / "resnet50_places365.pth.tar")
    assert names(checkpoint(weights)) == ["class 0", "class 1"]
    (tmp_path / CATEGORIES).write_text("/b/bar/outdoor 1\n/a/airfield 0\n")
    assert names(checkpoint(weights)) == ["airfield", "bar/outdoor"]
    with pytest.raises(UserError, match="has no name for class 2"):
        names(checkpoint(weights, 3))
    assert names(checkpoint("random", 1)) == ["class 0 (untrained weights)"]


def test_weights_that_are_not_there_are_named_with_where_they_are() -> None:
    with pytest.raises(NoWeights) as refused:
        checkpoint("/nowhere.pth.tar").identity()
    assert "places2.csail.mit.edu" in refused.value.remedy
