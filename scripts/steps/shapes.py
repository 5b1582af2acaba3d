"""The shapes that a TensorRT plan accepts and is optimised for, as trtexec's options. Pure
functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OPTIONS = ("minShapes", "optShapes", "maxShapes")

Inputs = Mapping[str, Sequence[int]]  # name -> full shape


def profile(least: Inputs, usual: Inputs, most: Inputs) -> dict[str, str]:
    return dict(zip(OPTIONS, map(_said, (least, usual, most)), strict=True))


def of_pixels(name: str, side: int, usual: int, most: int) -> dict[str, str]:
    """For an image network, by its batch sizes."""
    least, best, largest = ({name: (batch, 3, side, side)} for batch in (1, usual, most))
    return profile(least, best, largest)


def _said(inputs: Inputs) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in inputs.items())
