"""What the recipes and settings say, held against torchvision."""

from scripts.recipes.image import Image
from scripts.recipes.schema import load
from scripts.settings.choices import ARCHITECTURES
from scripts.steps.vision import torchvision
from tests.project import ROOT

RECIPE = ROOT / "model_repository" / "resnet50.yaml"


def test_the_recipe_says_what_the_weights_were_trained_with() -> None:
    recipe = load(RECIPE)
    assert isinstance(recipe, Image)
    weights = torchvision.models.get_model_weights("resnet50").DEFAULT
    how = weights.transforms()
    pictures = recipe.pictures
    assert [pictures.resize, pictures.crop] == [how.resize_size[0], how.crop_size[0]]
    assert pictures.interpolation == how.interpolation.value
    assert [list(pictures.mean), list(pictures.std)] == [list(how.mean), list(how.std)]
    assert recipe.class_count == len(weights.meta["categories"])


def test_the_known_architectures_are_those_of_torchvision() -> None:
    assert torchvision.models.list_models(module=torchvision.models) == ARCHITECTURES
