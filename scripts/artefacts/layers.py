"""What our own small networks are made of."""

from __future__ import annotations

from torch import nn


def make_convolution(before: int, after: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU()]
