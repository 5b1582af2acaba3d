"""The shapes that a TensorRT plan accepts and is optimised for, as trtexec's options. Pure
functions."""

from collections.abc import Mapping, Sequence

OPTIONS = ("minShapes", "optShapes", "maxShapes")

Inputs = Mapping[str, Sequence[int]]  # name -> full shape


def profile(least: Inputs, usual: Inputs, most: Inputs) -> dict[str, str]:
    return dict(zip(OPTIONS, map(_option, (least, usual, most)), strict=True))


def of_pixels(name: str, crop: int | Sequence[int], usual: int, most: int) -> dict[str, str]:
    """For an image network, by its batch sizes."""
    batches = (1, min(usual, most), most)
    least, best, largest = ({name: (batch, 3, *sides(crop))} for batch in batches)
    return profile(least, best, largest)


def sides(crop: int | Sequence[int]) -> tuple[int, int]:
    """Height and width; of a square, one number is enough."""
    height, width = (crop, crop) if isinstance(crop, int) else crop
    return height, width


def _option(inputs: Inputs) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in inputs.items())
