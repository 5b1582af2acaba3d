"""What people write for a tensor -> the tensor: a number, a text, or lists of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

from bundle_serving.health import TEXT


class NotAValue(ValueError):
    """The message says which tensor it is about, and what it takes."""


@dataclass(frozen=True)
class Spec:
    """A tensor of a signature, without its batch dimension."""

    name: str
    datatype: str  # KServe's
    dims: Sequence[int]

    def __str__(self) -> str:
        return f"{self.datatype} {list(self.dims)}"


def row(spec: Spec, value: Any) -> NDArray[Any]:
    """One row of a batch. Dimensions that are missing in front have the size 1."""
    found = _texts(spec, value) if spec.datatype == "BYTES" else _numbers(spec, value)
    found = found.reshape((1,) * (len(spec.dims) - found.ndim) + found.shape)
    fits = len(found.shape) == len(spec.dims) and all(
        wanted in (-1, size) for wanted, size in zip(spec.dims, found.shape, strict=True)
    )
    if not fits:
        raise NotAValue(f"{spec.name} has the shape {list(found.shape)}, but takes {spec}")
    return found


def rows(specs: Sequence[Spec], values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """One row of each tensor."""
    names = [spec.name for spec in specs]
    if not isinstance(values, Mapping):
        raise NotAValue("it has no names")
    if unknown := sorted(values.keys() - {*names}):
        raise NotAValue(f"there is no {unknown[0]}; known: {', '.join(names)}")
    if missing := [name for name in names if name not in values]:
        raise NotAValue(f"{missing[0]} is missing")
    return {spec.name: row(spec, values[spec.name]) for spec in specs}


def anything(spec: Spec) -> NDArray[Any]:
    """A row that the signature allows."""
    shape = [max(size, 1) for size in spec.dims]
    if spec.datatype == "BYTES":
        return np.full(shape, TEXT, np.object_)
    return np.zeros(shape, triton_to_np_dtype(spec.datatype))


def _texts(spec: Spec, value: Any) -> NDArray[Any]:
    found = np.array(value, np.object_)
    each = [text.encode() if isinstance(text, str) else text for text in found.ravel()]
    if not all(isinstance(text, bytes) for text in each):
        raise NotAValue(f"{spec.name} is no text, but takes {spec}")
    return np.array(each, np.object_).reshape(found.shape)


def _numbers(spec: Spec, value: Any) -> NDArray[Any]:
    kind = np.dtype(triton_to_np_dtype(spec.datatype))
    refused = NotAValue(f"{spec.name} is {str(value)[:60]}, but takes {spec}")
    try:
        given = np.array(value)
        if not given.size:
            return np.zeros(given.shape, kind)
        # To numpy, numbers with a sign and without are of two kinds.
        whole = kind.kind in "iu" and given.dtype.kind in "iu"
        with np.errstate(over="raise"):
            found = given.astype(kind, casting="unsafe" if whole else "same_kind")
    except (TypeError, ValueError, FloatingPointError):
        raise refused from None
    if kind.kind != "f" and (found != given).any():  # beyond its range
        raise refused
    return found
