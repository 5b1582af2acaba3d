"""What its models are made for."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from scripts.artefacts.workspace import Workspace
from scripts.recipes import configs, pipelines
from scripts.recipes.layout import CPU
from scripts.server.layouts import layout
from scripts.settings.settings import DEFAULTS, Settings


def test_its_plan_takes_the_shapes_that_the_recipe_says(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("sounds").recipe
    shapes = recipe.shapes(Workspace(tmp_path), Settings(DEFAULTS))  # which it does not ask
    assert shapes == {
        "minShapes": "LOG_MEL:1x1x64x97,SHARES:1x1",
        "optShapes": "LOG_MEL:16x2x64x97,SHARES:16x2",
        "maxShapes": "LOG_MEL:64x30x64x97,SHARES:64x30",
    }


def test_sounds_of_one_window_have_a_plan_too(tmp_path: Path) -> None:
    recipe: Any = pipelines.find_pipeline("sounds").recipe
    short = recipe.model_copy(update={"hearing": recipe.hearing.model_copy(update={"longest": 2})})
    shapes = short.shapes(Workspace(tmp_path), Settings(DEFAULTS))
    assert shapes["optShapes"] == "LOG_MEL:16x1x64x97,SHARES:16x1"
    assert shapes["maxShapes"] == "LOG_MEL:64x1x64x97,SHARES:64x1"


def test_its_network_takes_no_more_than_the_step_before_makes() -> None:
    recipe: Any = pipelines.find_pipeline("sounds").recipe
    member = configs.read_model("listener_onnx")
    made: Any = Mock()
    made.manifest.transform = recipe.hearing.model_dump()
    made.manifest.onnx = {"classes": recipe.classes}
    assert recipe.fit(member, made, layout(Settings(DEFAULTS), CPU))
    assert member.parameters["most_numbers"].string_value == str(30 * 64 * 97)
