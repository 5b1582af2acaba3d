"""What the recipes and settings say, held against torchvision."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scripts.artefacts.manifest import Torchvision
from scripts.recipes.image import Image
from scripts.recipes.schema import load
from scripts.settings.choices import ARCHITECTURES
from scripts.steps import networks
from scripts.steps.vision import torchvision
from tests.project import ROOT

RECIPE = ROOT / "model_repository" / "resnet50.yaml"
# One of each.
FAMILIES = """
    alexnet convnext_tiny densenet121 efficientnet_b0 googlenet inception_v3 maxvit_t mnasnet0_5
    mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18 shufflenet_v2_x0_5 squeezenet1_0 swin_t
    swin_v2_t vgg11 vit_b_16 vit_h_14
"""


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


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts something in the place of what torchvision publishes for an architecture: `of(arch)`."""

    def of(arch: str) -> dict[str, torch.Tensor]:
        entry = torchvision.models.get_model_weights(arch).DEFAULT
        is_vit, aux = arch.startswith("vit"), arch in ("googlenet", "inception_v3")
        more: dict[str, Any] = {"image_size": entry.meta["min_size"][0]} if is_vit else {}
        more |= {"aux_logits": True, "init_weights": False} if aux else {}
        state: dict[str, torch.Tensor] = torchvision.models.get_model(arch, **more).state_dict()
        if arch.startswith("densenet"):  # as its files were written
            state = {
                re.sub(r"(denselayer\d+\.[a-z]+)([12])", r"\1.\2", name): tensor
                for name, tensor in state.items()
                if not name.endswith("num_batches_tracked")
            }
        monkeypatch.setattr(type(entry), "get_state_dict", lambda *_, **__: state)
        return state

    return of


@pytest.mark.parametrize("arch", FAMILIES.split())
def test_a_network_is_made_as_torchvision_makes_it_with_its_weights(
    published: Any, tmp_path: Path, arch: str
) -> None:
    # Without numbers, but where they say how large it is.
    with torch.device("cpu" if arch.startswith("regnet") else "meta"):
        torch.save(dict(published(arch)), mine := tmp_path / "mine.pth")
        theirs = torchvision.models.get_model(arch, weights="DEFAULT").eval()
        ours = [networks.build(Torchvision(arch, each)).module for each in ("default", str(mine))]
    for each in ours:
        assert _list_parts(each) == _list_parts(theirs)


def _list_parts(module: nn.Module) -> dict[str, Any]:
    """What its parts are and were told, but for those that only training needs."""
    told = (bool, int, float, str, tuple, list)
    return {
        name: (
            part.extra_repr(),
            {
                key: value
                for key, value in vars(part).items()
                if isinstance(value, told) and key != "aux_logits"
            },
        )
        for name, part in module.named_modules()
        if "aux" not in name.lower()
    }


@pytest.mark.parametrize("arch", ["googlenet", "inception_v3"])
def test_one_that_scales_its_input_answers_as_torchvisions(
    published: Any, tmp_path: Path, arch: str
) -> None:
    """Its file has the parts that only training needs, or lacks them."""
    torch.manual_seed(1)
    published(arch)
    theirs = torchvision.models.get_model(arch, weights="DEFAULT").eval()
    torch.save(theirs.state_dict(), tmp_path / "mine.pth")
    noise = torch.randn(2, 3, 299, 299)
    for weights in ("default", str(tmp_path / "mine.pth")):
        ours = networks.build(Torchvision(arch, weights))
        with torch.inference_mode():
            assert torch.equal(ours.module(noise), theirs(noise))


def test_versions_of_before_it_scaled_its_input_are_made_anew() -> None:
    assert Torchvision("inception_v3").identity()["scales_input"]
    for other in (Torchvision("inception_v3", "random"), Torchvision("resnet18")):
        assert "scales_input" not in other.identity()


def test_a_published_file_is_taken_in_the_size_that_it_was_published_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = torchvision.models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1
    digest = Path(entry.url).stem.rpartition("-")[2]
    with torch.device("meta"):
        state = torchvision.models.vit_b_16(image_size=384).state_dict()
        monkeypatch.setattr(networks, "read_state", lambda _: state)
        monkeypatch.setattr(networks, "of_file", lambda *_: {"sha256": digest})
        network = networks.build(Torchvision("vit_b_16", "swag.pth"))
    assert network.transform["crop"] == network.module.image_size == 384
