"""What plain PyTorch says of places."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.pipelines import pytorch
from tests.project import ROOT

CLASSES = 365
CHECKPOINT = "resnet50_places365.pth.tar"


def checkpoint_of_places(folder: Path) -> None:
    """The form that Places365 publishes: trained on several GPUs, with other things beside."""
    import torch

    from kinds.places.export import CATEGORIES
    from scripts.steps.vision import torchvision

    torch.manual_seed(1)
    network = torchvision.models.resnet50(weights=None, num_classes=CLASSES)
    state = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
    torch.save(
        {"epoch": 90, "arch": "resnet50", "state_dict": state, "best_prec1": 54.7},
        folder / CHECKPOINT,
    )
    lines = [f"/p/place_{number} {number}\n" for number in range(CLASSES)]
    (folder / CATEGORIES).write_text("".join(lines))


def places_by_pytorch(weights: Path, photos: list[Path]) -> list[NDArray[np.float32]]:
    """With the transforms that Places365's networks were trained with."""
    from kinds.places.recipe import Places
    from scripts.recipes.schema import load
    from scripts.steps.networks import read_state
    from scripts.steps.vision import torchvision

    recipe = load(ROOT / "kinds" / "places" / "places.yaml")
    assert isinstance(recipe, Places)
    how = recipe.pictures
    usual = torchvision.transforms.Compose(
        [
            torchvision.transforms.Resize((how.side, how.side)),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize(how.mean, how.std),
        ]
    )
    network = torchvision.models.resnet50(weights=None, num_classes=CLASSES).eval()
    network.load_state_dict(read_state(weights))
    return pytorch(network, usual, photos)
