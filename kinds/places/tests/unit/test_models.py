"""What its models are made for."""

from pathlib import Path

from scripts.artefacts.workspace import Workspace
from scripts.recipes import pipelines
from scripts.settings.settings import DEFAULTS, Settings


def test_its_plan_takes_the_shapes_that_the_recipe_says(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("places").recipe
    shapes = recipe.shapes(Workspace(tmp_path), Settings(DEFAULTS))  # which it does not ask
    assert shapes["maxShapes"] == "input_0:100x3x256x256"
