"""Wrong preprocessing, found by labelled pictures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.artefacts.drawn import network
from scripts.artefacts.drawn.drawings import SIDE, drawing
from scripts.artefacts.drawn.things import NAMES
from scripts.artefacts.exporting import call
from scripts.artefacts.manifest import Torchvision
from scripts.steps import networks, try_pictures

COUNT = 96
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
USUAL = {
    **{"resize": 55, "crop": SIDE, "fit": "crop", "pad": 0, "middle": "even"},
    **{"interpolation": "bilinear", "channels": "rgb", "scale": 255, "mean": MEAN, "std": STD},
}
Levels = Callable[[torch.Tensor], torch.Tensor]


class Wants(torch.nn.Module):  # type: ignore[misc]  # torch comes without types here
    """A network as another training might have made it: `levels` turns what it takes into levels
    from 0 to 1."""

    def __init__(self, network: torch.nn.Module, levels: Levels) -> None:
        super().__init__()
        self.network, self.levels = network, levels

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(self.levels(pixels))
        return scores


class Drawn(torch.nn.Module):  # type: ignore[misc]
    """The network of drawings, which takes any colour for any other."""

    def __init__(self, trained: Path) -> None:
        super().__init__()
        self.network = networks.build(Torchvision("drawn", str(trained))).module
        for name in ("MEAN", "STD"):
            values = torch.tensor(getattr(network, name)).view(1, 3, 1, 1)
            self.register_buffer(name.lower(), values)

    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network((levels - self.mean) / self.std)
        return scores


COLOURS = [(90, 160, 200), (120, 150, 180), (60, 60, 160), (90, 90, 140), (200, 120, 60)]
COLOURS += [(220, 200, 180), (40, 90, 60), (30, 120, 40)]


class Coloured(torch.nn.Module):  # type: ignore[misc]
    """The nearest of eight colours."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("colours", torch.tensor(COLOURS) / 255)

    def forward(self, levels: torch.Tensor) -> torch.Tensor:
        mean = levels.mean((2, 3))
        return 2 * mean @ self.colours.T - (self.colours**2).sum(1)


def imagenet(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (MEAN, STD))
    return pixels * std + mean


def caffe(pixels: torch.Tensor) -> torch.Tensor:
    return ((pixels + torch.tensor([103.94, 116.78, 123.68]).view(1, 3, 1, 1)) / 255).flip(1)


def halve(pixels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(imagenet(pixels), 2)


def save_square(picture: Image.Image, path: Path) -> None:
    picture.save(path)


def save_wide(picture: Image.Image, path: Path) -> None:
    """As a camera with pixels that are not square."""
    picture.resize((4 * SIDE, SIDE)).save(path)


def save_aside(picture: Image.Image, path: Path) -> None:
    """At one end of a wide picture, where look_aside finds it in its frame."""
    wide = Image.new("RGB", (2 * SIDE, SIDE))
    wide.paste(picture, (SIDE, 0))
    wide.save(path)


def save_framed(picture: Image.Image, path: Path) -> None:
    """In the middle eighth of what an eighth around it is left out of."""
    framed = Image.new("RGB", (SIDE * 8 // 7, SIDE * 8 // 7))
    framed.paste(picture, (3, 3))
    framed.save(path)


def look_aside(pixels: torch.Tensor) -> torch.Tensor:
    return imagenet(pixels)[:, :, SIDE // 2 : SIDE * 3 // 2, SIDE:]


Save = Callable[[Image.Image, Path], None]
EIGHT: dict[str, tuple[Levels, Save | None, dict[str, Any], dict[str, Any]]] = {
    "levels from 0 to 1": (lambda x: x, save_framed, {}, {"mean": [0] * 3, "std": [1] * 3}),
    "levels from -1 to 1": (
        *(lambda x: x / 2 + 0.5, None, {}),
        {"mean": [0.5] * 3, "std": [0.5] * 3},
    ),
    "levels from 0 to 255": (
        *(lambda x: x / 255, save_framed, {}),
        {"scale": 1, "mean": [0] * 3, "std": [1] * 3},
    ),
    "BGR": (
        *(lambda x: imagenet(x.flip(1)), None, {}),
        {"channels": "bgr", "mean": MEAN[::-1], "std": STD[::-1]},
    ),
    "less their mean, BGR": (caffe, None, {}, {"channels": "bgr", "scale": 1}),
    "squashed": (imagenet, save_wide, {}, {"fit": "squash", "resize": SIDE}),
    "letterbox": (
        *(look_aside, save_aside, {"crop": 2 * SIDE, "resize": 110}),
        {"fit": "letterbox", "resize": 2 * SIDE},
    ),
    "another size": (halve, save_square, {"crop": 224, "resize": 256}, {"crop": 96}),
}


def export(module: Wants, side: int, path: Path, any_size: bool) -> None:
    open_axes = {0: "batch", **({2: "height", 3: "width"} if any_size else {})}
    torch.onnx.export(
        module.eval(),
        (torch.zeros(2, 3, side, side),),
        path,
        input_names=["pixels"],
        output_names=["output"],
        dynamic_axes={"pixels": open_axes, "output": {0: "batch"}},
        dynamo=False,
    )


def search(
    folder: Path,
    trained: Path,
    levels: Levels,
    save: Save | None,
    more: dict[str, Any],
    shift: int = 0,
) -> dict[str, Any]:
    """Without a way to save drawings: of colours."""
    how = {**USUAL, **more}
    any_size = how["crop"] == 224
    module = Drawn(trained) if save else Coloured()
    export(Wants(module, levels), how["crop"], folder / "net.onnx", any_size)
    random, items = np.random.default_rng(3), []
    for number in range(COUNT):
        label = number % len(NAMES)
        if save:
            save(drawing(label, random), folder / f"{number}.png")
        else:
            noise = random.normal(COLOURS[label], 12, (SIDE, SIDE, 3)) + random.normal(0, 4, 3)
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
        items.append((f"{number}.png", (label + shift) % len(NAMES)))
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "items.json").write_text(json.dumps([*items, ("broken.png", 0)]))
    words = ["--network", str(folder / "net.onnx"), "--pictures", json.dumps(how)]
    words += ["--classes", str(len(NAMES)), *(["--any-size"] if any_size else [])]
    words += ["--labelled", str(folder), "--items", str(folder / "items.json")]
    call(try_pictures.try_all, [*words, "--out", str(folder / "tried.json")])
    found: dict[str, Any] = json.loads((folder / "tried.json").read_text())
    assert found["of"] == COUNT
    return found


@pytest.mark.parametrize("name", EIGHT)
def test_each_of_eight_is_found(name: str, trained: Path, tmp_path: Path) -> None:
    levels, save, more, expected = EIGHT[name]
    found = search(tmp_path, trained, levels, save, more)
    assert found["order"] is None
    assert found["best"] >= 0.85 * COUNT and found["best"] > found["usual"], found
    assert {key: found["pictures"].get(key) for key in expected} == expected, found


def test_what_is_right_already_stays(trained: Path, tmp_path: Path) -> None:
    found = search(tmp_path, trained, imagenet, save_framed, {})
    assert found["pictures"] == {} and found["best"] == found["usual"] >= 0.85 * COUNT


def test_labels_in_another_order_are_told_apart_from_wrong_pictures(
    trained: Path, tmp_path: Path
) -> None:
    found = search(tmp_path, trained, lambda x: x / 255, save_framed, {}, shift=3)
    assert found["pictures"]["scale"] == 1 and found["best"] >= 0.85 * COUNT
    count = len(NAMES)
    assert found["order"] == [(number - 3) % count for number in range(count)]


def test_no_picture_that_can_be_read(trained: Path, tmp_path: Path) -> None:
    network, items = tmp_path / "net.onnx", tmp_path / "items.json"
    export(Wants(Coloured(), imagenet), SIDE, network, any_size=False)
    (tmp_path / "broken.avif").write_bytes(b"no picture")
    items.write_text(json.dumps([("broken.avif", 0)]))
    wanted = try_pictures.Wanted(network, USUAL, len(NAMES), tmp_path, items, tmp_path / "out")
    found = try_pictures.search(wanted, [(tmp_path / "broken.avif", 0)])
    assert found["of"] == 0 and not found["pictures"]  # and the command says so
