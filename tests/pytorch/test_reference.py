"""The original, asked about labelled pictures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.artefacts.drawn.drawings import many
from scripts.artefacts.exporting import call, unless_it_fits
from scripts.artefacts.manifest import Torchvision
from scripts.steps import adopt, export, networks, reference, reference_torch
from scripts.steps.vision import torchvision
from tests.project import picture
from tests.pytorch.test_adopt import HOW, NORMALISED
from tests.pytorch.test_adopt import foreign as foreign

COUNT = 64


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Drawn things, of several sizes, and one file that is none."""
    folder = tmp_path / "val"
    folder.mkdir()
    for number, pixels in enumerate(many(COUNT, seed=5)[0]):
        side = 48 + 3 * number
        drawn = Image.fromarray(pixels.transpose(1, 2, 0)).resize((side, 48 + number))
        drawn.save(folder / f"{number:02}.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def ask(labelled: Path, onnx: Path, *words: str) -> tuple[str, list[int]]:
    names = sorted(path.name for path in labelled.iterdir())
    items = labelled.parent / "items.json"
    items.write_text(json.dumps(names))
    where = ["--onnx", str(onnx), "--labelled", str(labelled), "--items", str(items)]
    step = reference_torch if "--arch" in words else reference
    call(step.ask_original, [*words, *where, "--out", str(labelled.parent)])
    with np.load(labelled.parent / reference.OUT) as found:
        first = found["first"].tolist()
        assert first[names.index("broken.jpg")] == -1
        return str(found["what"]), [each for each in first if each >= 0]


def as_users_ask(network: networks.Network, side: tuple[int, int], files: list[Path]) -> list[int]:
    """By torchvision's own preset."""
    transforms: Any = torchvision.transforms
    preset = transforms._presets.ImageClassification(
        resize_size=side[0], crop_size=side[1], mean=network.mean, std=network.std
    )
    pictures = [preset(Image.open(path).convert("RGB")) for path in files]
    with torch.inference_mode():
        return [int(network.module(each[None]).argmax()) for each in pictures]


def test_pytorch_answers_as_its_user_has_it_answer(
    labelled: Path, trained: Path, tmp_path: Path
) -> None:
    files = sorted(labelled.glob("*.png"))
    wanted = Torchvision("drawn", str(trained))
    expected = as_users_ask(networks.build(wanted), (48, 48), files)
    words = ["--arch", "drawn", "--weights", str(trained), "--precision", "fp32"]
    assert ask(labelled, tmp_path, *words) == ("PyTorch", expected)
    # Without its weights, what was exported of it.
    export.export(wanted, tmp_path / "onnx")
    what, first = ask(labelled, tmp_path / "onnx")
    assert what == "the exported network in ONNX Runtime" and first == expected


def test_real_weights_on_photos(assets: Path, tmp_path: Path) -> None:
    weights = assets / "weights" / "mobilenet_v2_imagenet.safetensors"
    folder = tmp_path / "val"
    folder.mkdir()
    for path in sorted((assets / "images").iterdir()):
        photo = Image.open(path).convert("RGB")
        photo.thumbnail((500, 500))
        for number in range(2):
            photo.rotate(7 * number).save(folder / f"{path.stem}{number}.png")
    (folder / "broken.jpg").write_bytes(b"")
    files = sorted(folder.glob("*.png"))
    network = networks.build(Torchvision("mobilenet_v2", str(weights)))
    expected = as_users_ask(network, (network.transform["resize"], 224), files)
    words = ["--arch", "mobilenet_v2", "--weights", str(weights)]
    assert ask(folder, tmp_path, *words) == ("PyTorch", expected)


def test_somebodys_own_file_in_onnx_runtime(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, how = tmp_path / "val", json.dumps(HOW | NORMALISED)
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.jpg").write_bytes(picture((200 + 9 * number, 150)))
    (folder / "broken.jpg").write_bytes(b"no picture")
    words = ["--network", str(foreign), "--pictures", how]
    out = ["--out", str(tmp_path / "onnx")]
    call(unless_it_fits(adopt.adopt), [*words, *out])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow's limit, as it is in a step
    what, first = ask(folder, tmp_path / "onnx", *words)
    assert what == foreign.name and len(first) == 8
    assert ask(folder, tmp_path / "onnx") == ("the exported network in ONNX Runtime", first)
