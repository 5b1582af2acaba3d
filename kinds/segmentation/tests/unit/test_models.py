"""What its models are made for."""

from pathlib import Path

from scripts.artefacts.workspace import Workspace
from scripts.recipes import configs, pipelines
from scripts.recipes.folders import model_folder
from scripts.recipes.layout import CPU
from scripts.server.layouts import layout
from scripts.settings.settings import DEFAULTS, Settings


def test_its_plan_takes_the_shapes_that_the_recipe_says(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("segmentation").recipe
    shapes = recipe.shapes(Workspace(tmp_path), Settings(DEFAULTS))  # which it does not ask
    assert shapes == {
        "minShapes": "input:1x3x520x520",
        "optShapes": "input:4x3x520x693",
        "maxShapes": "input:4x3x1560x1560",
    }


def test_its_network_takes_no_more_than_the_step_before_makes(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("segmentation").recipe
    member = configs.read_model("segmenter_onnx")
    assert recipe.fit(member, Workspace(tmp_path), layout(Settings(DEFAULTS), CPU))
    assert member.parameters["most_numbers"].string_value == str(3 * 1560 * 1560)


def test_programs_that_are_the_same_stay_so() -> None:
    for one, other, file in (
        ("preprocessing", "segmentation_preprocessing", "1/model.py"),
        ("preprocessing", "segmentation_preprocessing", "warmup/mug.jpg"),
    ):
        there = model_folder(one) / file
        assert there.read_bytes() == (model_folder(other) / file).read_bytes()
