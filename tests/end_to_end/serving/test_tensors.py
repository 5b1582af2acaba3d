"""Tensors that belong to another library than numpy, through the glue and a real server.

A GPU's are cupy's; on a CPU PyTorch's go the same way, by DLPack.
"""

from pathlib import Path

from tests.bare_server import bare_server

CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "INPUT_0" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [ 3 ] } ]
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
"""

MODEL = """
import torch

from bundle_serving.triton import answer, tensor


class TritonPythonModel:
    def execute(self, requests):
        return [answer(doubled, request) for request in requests]


def doubled(request):
    given = tensor(request, "INPUT_0")
    assert given.base is not None  # seen where it lies, not copied
    return torch.tensor(given) * 2
"""


def test_a_tensor_of_another_library_goes_on_by_dlpack(tmp_path: Path) -> None:
    with bare_server(tmp_path, CONFIG, MODEL) as server:
        for numbers in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]):
            answered = server.infer((1, 3), numbers)
            assert answered == [2 * number for number in numbers], server.log.read_text()
