"""Tensors that belong to another library than numpy, through the glue and a real server.

A GPU's are cupy's; on a CPU PyTorch's go the same way, by DLPack.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from bundle_serving.process import sockets
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.protocol import over_socket
from tests.project import ROOT, wait_until

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
    version = tmp_path / "models" / PIPELINE / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "bundle_serving.process.start_server", "--http-socket"]
    command += ["--repository", str(version.parents[1]), "--run-dir", str(run)]
    server_at = over_socket.opener(sockets.folder(run) / sockets.TRITONS_HTTP)
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    try:
        wait_until(lambda: _ready(server_at), f"the server, {log}")
        for numbers in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]):
            tensor = {"name": "INPUT_0", "datatype": "FP32", "shape": [1, 3], "data": numbers}
            asked = urllib.request.Request(
                f"http://server/v2/models/{PIPELINE}/infer",
                json.dumps({"inputs": [tensor]}).encode(),
            )
            with server_at.open(asked, timeout=60) as answered:
                (output,) = json.load(answered)["outputs"]
            assert output["data"] == [2 * number for number in numbers], log.read_text()
    finally:
        server.terminate()
        server.wait()


def _ready(server_at: urllib.request.OpenerDirector) -> bool:
    try:
        with server_at.open(f"http://server/v2/models/{PIPELINE}/ready", timeout=60):
            return True
    except OSError:
        return False
