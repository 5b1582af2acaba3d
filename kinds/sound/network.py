"""The network that tells sounds apart, one window at a time."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from kinds.sound.drawings import DRAWN, NAMES
from kinds.sound.serving.sounds import LOG_MEL, SHARES, Hearing
from scripts.artefacts.drawn.network import make_convolution
from scripts.artefacts.manifest import lines_of, of_file, require_labels
from scripts.artefacts.onnx_file import BATCH, save
from scripts.base.errors import UserError
from scripts.steps.networks import fill_weights, read_state

# Of the sounds that are made up here, with how it hears (kinds.sound.training trained it).
WEIGHTS = Path(__file__).parent / "weights.safetensors"
HEARD = "hearing"
SCORES = "SCORES"
# Less than any probability that matters: the logarithm of 0 would be infinite.
LEAST = 1e-12


class Pooled(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """Mean and maximum of each feature: a sound may be short or lasting, and anywhere."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.cat([features.mean((2, 3)), features.amax((2, 3))], dim=1)


def network(classes: int) -> nn.Module:
    """A window's log-mel bands [n, 1, mels, frames] -> a score for each class."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm2d(1),
        *make_convolution(1, 16, size=5, stride=2),
        nn.MaxPool2d(2),
        *make_convolution(16, 32),
        nn.MaxPool2d(2),
        *make_convolution(32, 64),
        nn.MaxPool2d(2),
        *make_convolution(64, 128),
        Pooled(),
        nn.Linear(256, classes),
    )


class Averaged(nn.Module):  # type: ignore[misc]
    """Sounds as windows [batch, windows, mels, frames], and each window's share of the answer ->
    scores: the logarithms of the average probabilities."""

    def __init__(self, module: nn.Module, precision: str = "fp32") -> None:
        super().__init__()
        half = precision == "fp16"
        self.module = copy.deepcopy(module).half() if half else module
        self.inside = torch.float16 if half else torch.float32

    def forward(self, windows: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        batch, count, mels, frames = windows.shape
        each = self.module(windows.reshape(batch * count, 1, mels, frames).to(self.inside))
        likely = each.to(torch.float32).softmax(1).reshape(batch, count, -1)
        average: torch.Tensor = (likely * shares[..., None]).sum(1)
        return average.clamp(min=LEAST).log()


def build(
    weights: str, hearing: Mapping[str, Any], labels: Path | None
) -> tuple[nn.Module, list[str], dict[str, str]]:
    """With the names of its classes, and where its weights come from."""
    is_drawn = weights == DRAWN
    if is_drawn:
        _require_same_hearing(hearing)
    path = WEIGHTS if is_drawn else Path(weights)
    state = read_state(path)
    *_, last, _ = network(1).state_dict()
    classes = len(state[last]) if last in state else 1  # as many as the file has
    made = "give the state dict of kinds.sound.network.network(classes), trained further"
    module = fill_weights(network(classes), state, "this network", path, made)
    named = [f"drawn {name}" for name in NAMES] if is_drawn else lines_of(labels)
    named = named or [f"class {number}" for number in range(classes)]
    require_labels(named, classes, labels, path.name)
    return module.eval(), named, of_file(path, None)


def drop_longest(hearing: Mapping[str, Any]) -> dict[str, Any]:
    """What a network is trained for: all but the longest sound."""
    return {name: value for name, value in hearing.items() if name != "longest"}


def _require_same_hearing(hearing: Mapping[str, Any]) -> None:
    with safe_open(WEIGHTS, "pt") as file:
        trained_for = json.loads(file.metadata()[HEARD])
    if drop_longest(hearing) != trained_for:
        raise UserError(
            "the network of SOUNDS=drawn was trained for another `hearing` than the recipe has",
            "train it for that (.venv/bin/python -m kinds.sound.training --to "
            "build/mine.safetensors), and give it as SOUNDS=build/mine.safetensors",
        )


def to_onnx(module: nn.Module, how: Hearing, path: Path) -> None:
    examples = {LOG_MEL: torch.zeros(2, 3, how.mels, how.frames), SHARES: torch.ones(2, 3) / 3}
    windows = torch.export.Dim("windows", min=1, max=max(3, how.most_windows))
    save(module, examples, ({0: BATCH, 1: windows}, {0: BATCH, 1: windows}), SCORES, path)
