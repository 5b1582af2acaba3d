"""A small network that knows eight drawn things, and its weights (benchmark.demo_networks trained
them): for users who have no other network at hand."""

from pathlib import Path

import torch
from torch import nn

from scripts.artefacts.drawn.things import NAMES

WEIGHTS = Path(__file__).parent / "weights.safetensors"
MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]


def make_convolution(before: int, after: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    """What our own small networks are made of."""
    convolution = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU()]


class Strongest(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """The maximum of each feature over the picture: a thing may be anywhere."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.amax((2, 3))


def network() -> nn.Module:
    """Normalised pixels -> a score for each thing."""
    torch.manual_seed(0)
    return nn.Sequential(
        *make_convolution(3, 16, size=5, stride=2),
        nn.MaxPool2d(2),
        *make_convolution(16, 32),
        *make_convolution(32, 64),
        nn.MaxPool2d(2),
        *make_convolution(64, 128),
        Strongest(),
        nn.Linear(128, len(NAMES)),
    )
