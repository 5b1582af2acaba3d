"""Recipes are read strictly, and what is made of them is what a person would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bundle_serving import PIPELINE
from scripts.base.errors import UserError
from scripts.recipes import write
from scripts.recipes.kinds.image import Image
from scripts.recipes.schema import load
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps.signature import signature
from scripts.steps.workspace import Workspace
from tests.project import ROOT

RECIPES = ROOT / "recipes"
RECIPE = RECIPES / "resnet50.yaml"
REPOSITORY = ROOT / "model_repository"


@pytest.mark.parametrize("name", [path.name for path in sorted(RECIPES.glob("*.yaml"))])
def test_the_repository_is_what_the_recipes_make(name: str, tmp_path: Path) -> None:
    assert write.main(["--recipe", str(RECIPES / name), "--out", str(tmp_path)]) == 0
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 3
    for path in written:
        assert (tmp_path / path).read_bytes() == (REPOSITORY / path).read_bytes(), path


def test_every_config_of_the_repository_is_of_a_recipe() -> None:
    made = {path for recipe in RECIPES.glob("*.yaml") for path in load(recipe).files()}
    kept = {str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("*/config.pbtxt")}
    assert kept == {path for path in made if path.endswith("config.pbtxt")}


def test_what_a_person_reads_says_the_same_to_triton() -> None:
    """What is written by hand here is read back by Triton's own grammar."""
    for recipe in RECIPES.glob("*.yaml"):
        for path, content in load(recipe).files().items():
            if path.endswith(".pbtxt"):
                assert text_format.Parse(content, ModelConfig()).name == path.partition("/")[0]


def test_plans_take_the_shapes_that_the_recipes_say(tmp_path: Path) -> None:
    made = Workspace(tmp_path)  # which they do not ask
    texts, of_places, small, boxes, masks, sounds = (
        load(RECIPES / f"{name}.yaml").shapes(made, Settings(DEFAULTS))
        for name in ("sentiment", "places", "cascade", "detection", "segmentation", "sounds")
    )
    assert texts == {
        "minShapes": "INPUT_IDS:1x8,ATTENTION_MASK:1x8",
        "optShapes": "INPUT_IDS:16x64,ATTENTION_MASK:16x64",
        "maxShapes": "INPUT_IDS:64x512,ATTENTION_MASK:64x512",
    }
    assert of_places["maxShapes"] == "input_0:100x3x256x256"
    assert small["minShapes"] == "input:1x3x224x224"
    assert boxes["maxShapes"] == "input:64x3x320x320"
    assert masks == {
        "minShapes": "input:1x3x520x520",
        "optShapes": "input:4x3x520x693",
        "maxShapes": "input:4x3x1560x1560",
    }
    assert sounds == {
        "minShapes": "LOG_MEL:1x1x64x97,SHARES:1x1",
        "optShapes": "LOG_MEL:16x2x64x97,SHARES:16x2",
        "maxShapes": "LOG_MEL:64x30x64x97,SHARES:64x30",
    }


def of_pictures(path: Path) -> Image:
    recipe = load(path)
    assert isinstance(recipe, Image)
    return recipe


def test_the_recipe_says_what_the_settings_say() -> None:
    recipe = of_pictures(RECIPE)
    assert recipe.models.ensemble == PIPELINE
    values = {"ARCH": recipe.source.removeprefix("torchvision/"), "WEIGHTS": recipe.weights}
    values |= {"PRECISION": recipe.precision, "OPT_BATCH": str(recipe.batch.optimal)}
    assert values == {name: DEFAULTS[name] for name in values}


def changed(path: Path, **changes: Any) -> Path:
    """The recipe with other values; a dot in a key leads into a part, None takes the key out."""
    content = yaml.safe_load(RECIPE.read_text())
    for key, value in changes.items():
        *parts, last = key.split("__")
        where = content
        for part in parts:
            where = where[part]
        where.pop(last, None)
        if value is not None:
            where[last] = value
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("changes", "cause", "remedy"),
    [
        ({"colour": "red"}, "unknown key colour", "kind, models, setting, triton"),
        ({"pictures__size": 3}, "unknown key pictures.size", "resize, crop, fit, pad"),
        ({"classes": None}, "classes is missing", "resnet50.yaml shows it"),
        ({"kind": "smell"}, "kind 'smell' is not known", "cascade, detection, image"),
        ({"pictures__crop": "wide"}, "pictures.crop: 'wide'", "integer"),
        ({"pictures__interpolation": "cubic"}, "interpolation: 'cubic'", "'bilinear', 'bicubic'"),
        ({"pictures__mean": [1, 2]}, "pictures: ", "mean and std of rgb have 3 each"),
        ({"pictures__resize": 200}, "pictures: ", "at least as large as crop"),
        ({"batch__max": 0}, "batch.max: 0", "greater than or equal to 1"),
        ({"models__network": "../x"}, "models.network: '../x'", "pattern"),
        (
            {"warmup": "nobody.jpg"},
            "there is no preprocessing/warmup/nobody.jpg",
            "put the recipe's",
        ),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], cause: str, remedy: str
) -> None:
    path = changed(tmp_path / "odd.yaml", **changes)
    with pytest.raises(UserError) as refused:
        write.main(["--recipe", str(path), "--out", str(tmp_path / "out")])
    error = refused.value
    assert cause in error.cause and remedy in f"{error.cause}; {error.remedy}"
    assert "\n" not in f"{error.cause}{error.remedy}"


def test_what_is_no_recipe_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "none.yaml")
    for content, message in (
        ("a: [", "is not valid YAML"),
        ("- 1", "is not a recipe"),
        ("", "is not a recipe"),
    ):
        (tmp_path / "odd.yaml").write_text(content)
        with pytest.raises(UserError, match=message):
            load(tmp_path / "odd.yaml")


def test_a_network_that_takes_no_pixels_is_refused(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    def tensor(name: str, *dims: int | str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    path = tmp_path / "odd.onnx"
    for given, message in (
        (("n", 10), "float .dynamic, 10., not pictures .batch, 3, height, width."),
        ((1, 4, 8, 8), "float .1, 4, 8, 8.: neither colour .3 channels. nor grey .1."),
        (("n", 3, "h", "w"), "any height and width"),
    ):
        node = helper.make_node("Identity", ["in"], ["out"])
        graph = helper.make_graph([node], "odd", [tensor("in", *given)], [tensor("out", "n", 2)])
        save(helper.make_model(graph), path)
        with pytest.raises(UserError, match=message):
            signature(path)
    path.write_text("no network")
    with pytest.raises(UserError, match="cannot be read as ONNX"):
        signature(path)
    with pytest.raises(UserError, match="no network at"):
        signature(tmp_path / "none.onnx")
