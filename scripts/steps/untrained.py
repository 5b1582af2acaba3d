"""A network without training says the same of everything, unless its layers have seen pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from bundle_serving.pictures import Transform, to_pixels
from scripts.artefacts.samples import RANDOM_PICTURES, make_varied, noise


def set_to_pictures(module: nn.Module, run: Callable[[torch.Tensor], Any], how: Transform) -> None:
    """`run`: pixels, from 0 to 1, through all of its layers."""
    module.train()
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = None  # the mean of what it sees
    seen = [*noise(how), *(to_pixels(file, how) for file in make_varied()[:RANDOM_PICTURES])]
    with torch.no_grad():
        run(torch.from_numpy(np.stack(seen)) / 255)
