"""Which class each pixel of a picture belongs to, on the wire."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .wire import as_text, not_understood

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "segmentation"
OUTPUTS = ("MASK", "LABELS", "SHARES")


@dataclass(frozen=True, slots=True)
class Area:
    """All pixels of a class: its number in the mask, its label, and its share of the picture, from
    0 to 1."""

    index: int
    label: str
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Segmented:
    """The number of each pixel's class [height, width], in the size that the network saw the
    upright picture in, and the classes that are there, the largest first; `ms` as in a `Result`."""

    source: str
    mask: "NDArray[np.uint8]"
    areas: tuple[Area, ...]
    ms: float = 0.0


def read_mask(answer: Any) -> tuple["NDArray[np.uint8]", tuple[Area, ...]]:
    masks, labels, shares = map(answer.as_numpy, OUTPUTS)
    if masks is None or labels is None or shares is None or not len(masks) == 1:
        raise not_understood("no mask, labels and shares in it")
    areas = [
        Area(index, as_text(label), float(share))
        for index, (label, share) in enumerate(zip(labels[0], shares[0], strict=True))
        if share
    ]
    return masks[0], tuple(sorted(areas, key=lambda area: -area.share))
