"""Asks torchvision's network about labelled pictures in PyTorch, with torchvision's own
preprocessing: as in its training.

    python -m scripts.steps.reference_torch --arch resnet18 --weights birds.pth \
        --onnx build/…/onnx --labelled val --items items.json --out build/eval

Out: as from scripts.steps.reference.
"""

from pathlib import Path

import torch
from PIL import Image

from bundle_serving.own_steps import prepare
from scripts.artefacts.exporting import start
from scripts.artefacts.manifest import Torchvision
from scripts.base.errors import UserError
from scripts.intake import plain
from scripts.steps import networks
from scripts.steps.reference import EXPORTED, Ask, Question, ask_each, of_exported
from scripts.steps.vision import torchvision


def ask_original(question: Question, wanted: Torchvision) -> None:
    """`wanted`: as scripts.steps.export takes it."""
    try:
        network = networks.build(wanted)
    except UserError:  # its weights cannot be had again
        return ask_each(question, EXPORTED, of_exported(question.onnx))
    return ask_each(question, "PyTorch", make_asker(network))


def make_asker(network: networks.Network) -> Ask:
    """As torchvision's presets and its ImageFolder do it."""
    how, functional = network.transform, torchvision.transforms.functional
    kind = torchvision.transforms.InterpolationMode(how["interpolation"])

    def ask(path: Path) -> int:
        with Image.open(path) as file:
            picture = file.convert("RGB")
        if program := how.get("program"):
            found = prepare(program, how.get("packages", ""), picture, (how["crop"],) * 2)
            pixels = torch.from_numpy(found.transpose(2, 0, 1).copy())
        else:
            picture = functional.resize(plain.trim(picture), [how["resize"]], kind)
            pixels = functional.pil_to_tensor(functional.center_crop(picture, [how["crop"]]))
        normal = functional.normalize(pixels.float() / 255, network.mean, network.std)
        with torch.inference_mode():
            return int(network.module(normal[None])[0].argmax())

    return ask


if __name__ == "__main__":
    start(ask_original)
