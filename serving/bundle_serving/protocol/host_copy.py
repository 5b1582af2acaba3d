"""Copies of tensors from GPU memory by CUDA's own library, for an image without cupy."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIBRARIES = ("libcudart.so.13", "libcudart.so.12")
BY_THE_POINTERS = 4  # cudaMemcpyDefault: which side each lies on


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code_and_bits", ctypes.c_uint8 * 2),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def copy_to_host(given: Any) -> NDArray[Any]:
    """Of a tensor whose rows lie one after another, as Triton's do."""
    capsule = given.__dlpack__()
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(find(capsule, b"dltensor"))
    code, bits = tensor.code_and_bits
    copied = np.empty(tensor.shape[: tensor.ndim], f"{'iuf'[code]}{bits // 8}")
    source = ctypes.c_void_p(tensor.data + tensor.byte_offset)
    target, size = ctypes.c_void_p(copied.ctypes.data), ctypes.c_size_t(copied.nbytes)
    if fault := _load().cudaMemcpy(target, source, size, BY_THE_POINTERS):
        raise RuntimeError(f"scores cannot be copied from the GPU: CUDA error {fault}")
    return copied


def _load() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError(f"none of {', '.join(LIBRARIES)} is in this image; use POSTPROCESS=cpu")
