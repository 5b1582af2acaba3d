"""Two models in PyPI's tritonserver: one makes scores on the GPU, the other reads them there, or
after Triton copied them to the host. PyTorch's arrays, by DLPack."""

import json
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bundle_serving.process.main_pipeline import DEFAULT
from scripts.base import files
from scripts.stacks import temporary

BATCH = 32
PORTS = {"http": 18100, "grpc": 18101, "metrics": 18102}
URL = f"http://127.0.0.1:{PORTS['http']}/v2/models/{DEFAULT}/infer"

SCORES = """
import torch
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        sizes = [len(pb.get_input_tensor_by_name(r, "IN").as_numpy()) for r in requests]
        made = [torch.rand(size, 1000, device="cuda") for size in sizes]
        return [pb.InferenceResponse([pb.Tensor.from_dlpack("OUT", each)]) for each in made]
"""
SOFTMAX = """
import torch
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        given = [pb.get_input_tensor_by_name(r, "IN") for r in requests]
        made = [torch.from_dlpack(each).softmax(-1) for each in given]
        return [pb.InferenceResponse([pb.Tensor.from_dlpack("OUT", each)]) for each in made]
"""
TENSORS = """
max_batch_size: 64
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ {width} ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1000 ] }} ]
"""
MODEL = """
backend: "python"
parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "{copied}" }} }}
"""
ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "scores" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "made" } },
  { model_name: "softmax" model_version: -1
    input_map { key: "IN" value: "made" } output_map { key: "OUT" value: "OUT" } } ] }
"""


@contextmanager
def serve_both(copied: bool) -> Iterator[Callable[[], bytes]]:
    """Gives what asks both models once."""
    with tempfile.TemporaryDirectory() as folder:
        models, log = Path(folder) / "models", Path(folder) / "log"
        _lay_out(models, copied)
        command = [sys.executable, "-m", "bundle_serving.process.start_server"]
        command += ["--repository", str(models), "--run-dir", f"{folder}/run"]
        command += [f"--{name}-port={port}" for name, port in PORTS.items()]
        with temporary.running("PyPI's tritonserver", command, log, _reason_to_wait):
            yield _ask


def _lay_out(models: Path, copied: bool) -> None:
    backend = MODEL.format(copied="yes" if copied else "no")
    for name, code, width in (("scores", SCORES, 1), ("softmax", SOFTMAX, 1000)):
        files.write(models / name / "config.pbtxt", backend + TENSORS.format(width=width))
        files.write(models / name / "1" / "model.py", code)
    files.write(models / DEFAULT / "config.pbtxt", ENSEMBLE + TENSORS.format(width=1))
    (models / DEFAULT / "1").mkdir()


def _reason_to_wait() -> str | None:
    try:
        _ask()
    except OSError as fault:
        return str(fault)
    return None


def _ask() -> bytes:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [BATCH, 1], "data": [0] * BATCH}
    body = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body)) as answer:
        read: bytes = answer.read()
        return read
