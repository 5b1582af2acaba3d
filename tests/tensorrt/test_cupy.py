"""What cupy makes of the softmax compiles for every GPU that TensorRT serves: by NVRTC from PyPI,
which needs no driver, with the headers of cupy and of CUDA 13."""

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not importlib.util.find_spec("cupy"):
    pytest.skip("no cupy for this machine", allow_module_level=True)
import nvidia.cu13

CUDA = Path(next(iter(nvidia.cu13.__path__)))
INCLUDED = ("complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h")
COMPUTE_CAPABILITIES = ("75", "80", "86", "89", "90", "100", "103", "120")

# As bundle_serving.scores has them: numpy's functions, which cupy answers for its arrays.
ELEMENTWISE = {
    "subtract": "out0 = in0 - in1",
    "exp": "out0 = exp(in0)",
    "true_divide": "out0 = in0 / in1",
}
REDUCED = {"sum": ("T(0)", "a + b"), "max": ("-CUDART_INF_F", "max(a, b)")}
NDARRAY, INDEXER, SCALAR = 1, 2, 3  # _ArgKind of cupy 13.6


@pytest.fixture(scope="module")
def cupy() -> Any:
    """Which imports without a GPU, if it finds NVRTC."""
    for name in ("libnvrtc-builtins.so.*", "libnvrtc.so.13"):
        (library,) = (CUDA / "lib").glob(name)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    import cupy

    return cupy


def sources(cupy: Any) -> dict[str, str]:
    """As cupy writes them for arrays of float32."""
    from cupy._core import _carray, _kernel, _reduction, _scalar

    types = _kernel._TypeMap((("T", np.float32),))
    tensor = _kernel._ArgInfo(NDARRAY, cupy.ndarray, np.float32, 1, True, True)
    index = _kernel._ArgInfo(INDEXER, _carray.Indexer, None, 1, True, True)
    stride = _kernel._ArgInfo(SCALAR, _scalar.CScalar, np.int32, 0, True, True)

    def parameters(given: str, others: str) -> tuple[Any, ...]:
        made = _kernel._get_param_info(given, True) + _kernel._get_param_info("T out0", False)
        return tuple(made) + tuple(_kernel._get_param_info(others, False))

    made = {}
    given = parameters("T in0, T in1", "CIndexer _ind")
    for name, operation in ELEMENTWISE.items():
        made[name] = _kernel._get_elementwise_kernel_code(
            (tensor,) * 3 + (index,), types, given, operation, f"cupy_{name}", ""
        )
    given = parameters("T in0", "CIndexer _in_ind, CIndexer _out_ind, int32 _block_stride")
    for name, (identity, expression) in REDUCED.items():
        made[name] = _reduction._create_reduction_function_code(
            *(f"cupy_{name}", 256, "T", given, (tensor, tensor, index, index, stride)),
            *(identity, "in0", expression, "out0 = a", types),
            "const T &in0 = _raw_in0[_in_ind.get()];",
            *("T &out0 = _raw_out0[_out_ind.get()];", "typedef int IndexT;", ()),
        )
    return made


@pytest.mark.parametrize("capability", COMPUTE_CAPABILITIES)
def test_the_softmaxs_kernels_compile(cupy: Any, capability: str) -> None:
    from cupy.cuda import compiler

    head = "".join(f"#include <cupy/{name}>\n" for name in INCLUDED)
    folders = Path(cupy.__file__).parent / "_core" / "include", CUDA / "include"
    options = (
        *(f"-arch=sm_{capability}", "-std=c++17", "--device-as-default-execution-space"),
        *(f"-I{folder}" for folder in folders),
    )
    for name, source in sources(cupy).items():
        program = compiler._NVRTCProgram(head + source, f"{name}.cu", (), (), method="cubin")
        binary, _ = program.compile(options)
        assert binary.startswith(b"\x7fELF"), name
