"""Squares of pixels, held against torchvision's own transforms."""

import numpy as np
import pytest
from PIL import Image

from kinds.places.serving.arrays import Squares, to_square
from scripts.steps.vision import torchvision

HOW = Squares(256, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.mark.parametrize("shape", [(300, 200, 3), (64, 900, 3), (1, 1, 3), (256, 256, 3)])
def test_like_the_transforms_that_places365_was_trained_with(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)
    usual = torchvision.transforms.Compose(
        [
            torchvision.transforms.Resize((256, 256)),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize(HOW.mean, HOW.std),
        ]
    )
    expected = usual(Image.fromarray(pixels.astype(np.uint8))).numpy()
    square = to_square(pixels, HOW)
    assert square.dtype == np.float32 and square.shape == (3, 256, 256)
    assert np.abs(square - expected).max() < 1e-5
