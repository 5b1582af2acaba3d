"""Mean intersection over union, of masks that say each pixel's class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scripts.base.errors import UserError
from scripts.evaluation.figures import Interval, Measured
from scripts.evaluation.labelled import Item

if TYPE_CHECKING:
    from bundle_client import Client

# Of pixels that count neither way, as in Pascal VOC.
IGNORED = 255
# Small masks may be rounded by so much.
ALIKE = 1.1

# How many pixels of each class (rows) were called which (columns).
Confusion = NDArray[np.int64]


@dataclass(frozen=True)
class Masks:
    """Of each picture in images/ a PNG of its name in masks/, with the number of each pixel's
    class."""

    items: Sequence[Item]
    masks: Mapping[str, Path]
    classes: Sequence[str]

    @classmethod
    def read(cls, path: Path, classes: Sequence[str]) -> Masks:
        images = path / "images"
        if not images.is_dir():
            raise UserError(f"{path} has no images/ and masks/", "name a folder that has: EVAL=")
        found = sorted(each for each in images.iterdir() if not each.name.startswith("."))
        masks = {each.name: path / "masks" / f"{each.stem}.png" for each in found}
        if missing := [mask.name for mask in masks.values() if not mask.is_file()]:
            raise UserError(
                f"{len(missing)} masks of {path.name} are not there: {', '.join(missing[:5])}",
                "each picture in images/ needs a PNG of its name in masks/",
            )
        if not found:
            raise UserError(f"{images} is empty", "put pictures there")
        return cls([Item(each.name, "", each) for each in found], masks, classes)

    def ask(self, client: Client, model: str, item: Item) -> Confusion:
        answered = client.segment(item.source, model).mask
        truth = self._read_mask(self.masks[item.name], answered.shape)
        known = truth != IGNORED
        pairs = truth[known].astype(np.int64) * len(self.classes) + answered[known]
        counts = np.bincount(pairs, minlength=len(self.classes) ** 2)
        return counts.reshape(len(self.classes), -1)

    def _read_mask(self, path: Path, shape: Any) -> NDArray[np.uint8]:
        """In the answer's size, each pixel that of the nearest."""
        try:
            with Image.open(path) as file:
                shapes = file.width * shape[0], file.height * shape[1]
                mask = np.asarray(file.resize(shape[::-1], Image.Resampling.NEAREST))
        except OSError as fault:
            raise UserError(f"cannot read {path} ({fault})", "save it as a PNG again") from None
        if max(shapes) > ALIKE * min(shapes):
            raise UserError(
                f"{path.name} is wider or higher than its picture is, upright",
                "turn it as the picture's EXIF says, or make it of the whole picture",
            )
        numbers = {int(each) for each in np.unique(mask)} - {IGNORED} if mask.ndim == 2 else set()
        if mask.ndim != 2 or (numbers and max(numbers) >= len(self.classes)):
            raise UserError(
                f"{path.name} does not have the number of a class in each pixel, from 0 to "
                f"{len(self.classes) - 1}, or {IGNORED}",
                "save it as a PNG with a palette, or in grey",
            )
        return mask

    def measure(self, answers: Sequence[Confusion | None], refused: Mapping[str, str]) -> Measured:
        every = np.stack([each for each in answers if each is not None])
        if np.count_nonzero(every.sum(axis=(0, 2))) < min(2, len(self.classes)):
            raise UserError(
                f"but for {IGNORED}, which counts neither way, the masks have one number at most",
                "give each pixel the number of its class, from 0",
            )

        def count_right(times: NDArray[np.int64]) -> float:
            whole = np.tensordot(times, every, 1)
            return float(np.trace(whole) / max(whole.sum(), 1))

        each = find_overlaps(every.sum(axis=0))
        named = zip(self.classes, each, strict=True)
        return Measured(
            {
                "mIoU": Interval.of_drawn(len(every), self.compute_first(answers)),
                "pixels right": Interval.of_drawn(len(every), count_right),
            },
            {name: float(value) for name, value in named if not np.isnan(value)},
            len(every),
            refused,
        )

    def compute_first(
        self, answers: Sequence[Confusion | None]
    ) -> Callable[[NDArray[np.int64]], float]:
        every = np.stack([each for each in answers if each is not None])
        return lambda times: float(np.nanmean(find_overlaps(np.tensordot(times, every, 1))))


def find_overlaps(confusion: Confusion) -> NDArray[np.float64]:
    """Of each class; NaN where no pixel is labelled so, or called so."""
    hits = np.diag(confusion).astype(float)
    whole = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    with np.errstate(invalid="ignore"):
        overlaps: NDArray[np.float64] = hits / whole
    return overlaps
