"""Triton's own model folders, as its documentation writes them, dropped into the user's folder."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper

from bundle_serving.process.guard import GRPC_HEADER
from tests.project import Project, error_lines

# NVIDIA's server completes them itself, which its stand-in does not.
where_we_complete_configs = pytest.mark.parametrize(
    "served", ["local", pytest.param("cpu", marks=pytest.mark.rare)], indirect=True
)

PROGRAM = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "LENGTH", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            lengths = np.array([[len(text[0])] for text in texts], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("LENGTH", lengths)]))
        return responses
"""


def simple(path: Path, *dims: Any) -> None:
    """Upstream's: the sum of two rows, and their difference."""
    path.parent.mkdir(parents=True)
    names = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")
    ends = [helper.make_tensor_value_info(name, TensorProto.INT32, dims) for name in names]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    graph = helper.make_graph(nodes, "simple", ends[:2], ends[2:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.fixture
def models(served: Project) -> Iterator[Path]:
    folder = served.path / "own" / "model_repository"
    names = ("simple", "alone", "lengths", "empty")
    try:
        yield folder
    finally:
        for name in names:
            if name in loaded(served):
                served.made("unload", TRITON_MODEL=name)
            for home in (folder, served.path / "build" / "live"):
                shutil.rmtree(home / name, ignore_errors=True)


def added(project: Project, model: str, *shape: int) -> list[int]:
    rows = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    with tritonclient.http.InferenceServerClient(project.http) as client:
        tensors = []
        for name in ("INPUT0", "INPUT1"):
            tensors.append(tritonclient.http.InferInput(name, list(shape), "INT32"))
            tensors[-1].set_data_from_numpy(rows)
        answer = client.infer(model, tensors)
    assert not answer.as_numpy("OUTPUT1").any()
    found = answer.as_numpy("OUTPUT0")
    assert np.array_equal(found, rows + rows)
    return list(found.shape)


def loaded(project: Project) -> list[str]:
    """What the next start loads again."""
    noted = project.path / "build" / "versions" / "beside.json"
    names: list[str] = json.loads(noted.read_text()) if noted.exists() else []
    return names


@where_we_complete_configs
def test_a_network_without_a_config(served: Project, models: Path) -> None:
    simple(models / "simple" / "1" / "model.onnx", "n", 16)
    assert "loaded: simple, version 1" in served.made("load", TRITON_MODEL="simple")
    assert added(served, "simple", 3, 16) == [3, 16]
    assert "simple" in loaded(served)
    served.made("unload", TRITON_MODEL="simple")
    assert "simple" not in loaded(served)
    served.made("load", TRITON_MODEL="simple")
    assert "simple" in loaded(served) and added(served, "simple", 1, 16)
    (models / "empty" / "1").mkdir(parents=True)
    (line,) = error_lines(served.make("load", TRITON_MODEL="empty").stderr)
    assert "empty has no config.pbtxt, and no model.onnx or model.py" in line


def test_a_network_that_takes_no_batch(served: Project, models: Path) -> None:
    """With a config as upstream's examples have it, and another one for this load alone."""
    simple(models / "alone" / "1" / "model.onnx", 2, 16)
    ends = ", ".join(
        f'{{ name: "INPUT{n}" data_type: TYPE_INT32 dims: [ 2, 16 ] }}' for n in (0, 1)
    )
    given = ends.replace("INPUT", "OUTPUT")
    config = (
        f'platform: "onnxruntime_onnx"\nmax_batch_size: 0\ninput [ {ends} ]\noutput [ {given} ]\n'
    )
    (models / "alone" / "config.pbtxt").write_text(config)
    served.made("load", TRITON_MODEL="alone")
    assert added(served, "alone", 2, 16) == [2, 16]
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        key = {GRPC_HEADER: served.admin_key}
        before = client.get_model_config("alone", as_json=True)["config"]
        other = before | {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}
        client.load_model("alone", headers=key, config=json.dumps(other))
        (group,) = client.get_model_config("alone", as_json=True)["config"]["instance_group"]
    assert group["count"] == 2 and added(served, "alone", 2, 16)


@where_we_complete_configs
def test_a_program_that_completes_its_config(served: Project, models: Path) -> None:
    (models / "lengths" / "1").mkdir(parents=True)
    (models / "lengths" / "1" / "model.py").write_text(PROGRAM)
    served.made("load", TRITON_MODEL="lengths")
    with tritonclient.http.InferenceServerClient(served.http) as client:
        texts = tritonclient.http.InferInput("TEXT", [2, 1], "BYTES")
        texts.set_data_from_numpy(np.array([["one"], ["three"]], np.object_))
        answer = client.infer("lengths", [texts])
    assert answer.as_numpy("LENGTH").tolist() == [[3], [5]]
    (models / "lengths" / "1" / "model.py").write_text("class TritonPythonModel: pass")
    (line,) = error_lines(served.make("load", TRITON_MODEL="lengths").stderr)
    assert "lengths has no config.pbtxt, and its model.py cannot say one" in line
