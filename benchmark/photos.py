"""The photos that are sent: the user's own, or one as a phone takes it and one as ImageNet has.

Those are drawn, and grained as photographs are, so that they cost a decoder as much.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from bundle_client.sources import expand, name_of
from scripts.errors import UserError
from scripts.picture import mug

SIZES = {"8.5 megapixels": (3361, 2521), "500x375": (500, 375)}
GRAIN = 5
QUALITY = 90


def given_or_drawn(images: str) -> dict[str, bytes]:
    if not images:
        return {name: drawn(size) for name, size in SIZES.items()}
    try:
        return {name_of(path): Path(str(path)).read_bytes() for path in expand(images)}
    except OSError as fault:
        raise UserError(
            f"IMAGES={images} cannot be read ({fault.strerror})", "name a picture or a folder"
        ) from None


def drawn(size: tuple[int, int]) -> bytes:
    clean = np.asarray(mug().resize(size, Image.Resampling.LANCZOS), np.float32)
    grain = np.random.default_rng(0).normal(0, GRAIN, clean.shape[:2])
    grained = np.clip(clean + grain[..., None], 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(grained).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()
