"""What torchvision's own code sees in pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.pipelines import SIZES, of_mixed_sizes

if TYPE_CHECKING:  # which imports PyTorch
    from kinds.segmentation.segmenters import Whole

LRASPP = "lraspp_mobilenet_v3_large"


def of_mixed_shapes(folder: Path) -> list[Path]:
    """Some of them, without those that are refused for being too long."""
    photos = zip(of_mixed_sizes(folder), SIZES, strict=True)
    return [photo for photo, size in photos if max(size) <= 3 * min(size)][:6]


def masks_by_torchvision(segmenter: Whole, photos: list[Path]) -> list[NDArray[np.uint8]]:
    """By its own code from the picture to the classes, with enough of them to tell something."""
    masks = [segmenter.see(Image.open(photo)) for photo in photos]
    assert all(np.bincount(mask.ravel()).max() < 0.95 * mask.size for mask in masks)
    return masks
