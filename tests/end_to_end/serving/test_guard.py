"""What is the operator's, and that nobody else comes to the key."""

import http.client
import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

import docker
from bundle_serving.process.guard import GRPC_HEADER, HEADER
from scripts.measuring.perf_analyzer import has_libb64
from tests.end_to_end.building.test_readme import blocks
from tests.measuring import words_shown_while_measuring
from tests.plugin import ON_A_GPU, everywhere
from tests.project import ROOT, Project, error_lines, picture

PIPELINE = "ensemble_python_resnet50"
WRONG = "0123456789abcdef0123456789abcdef"
# In the repository, and of no pipeline without a GPU.
SPARE = "preprocessing_dali"
REGION = {"key": "/no_such_region", "offset": 0, "byte_size": 8}
CUDA_REGION = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8}

GUARDED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "repository/index", {}),
    ("POST", f"repository/models/{PIPELINE}/load", {}),
    ("POST", f"repository/models/{SPARE}/unload", {}),
    *[
        call
        for kind, region in (("system", REGION), ("cuda", CUDA_REGION))
        for call in (
            ("GET", f"{kind}sharedmemory/status", {}),
            ("GET", f"{kind}sharedmemory/region/mine/status", {}),
            ("POST", f"{kind}sharedmemory/region/mine/register", region),
            ("POST", f"{kind}sharedmemory/region/mine/unregister", {}),
            ("POST", f"{kind}sharedmemory/unregister", {}),
        )
    ],
    ("GET", "trace/setting", {}),
    ("POST", "trace/setting", {}),
    ("GET", f"models/{PIPELINE}/trace/setting", {}),
    ("POST", f"models/{PIPELINE}/trace/setting", {}),
    ("GET", "logging", {}),
    ("POST", "logging", {}),
]
OPEN = [
    "",
    "/health/live",
    "/health/ready",
    f"/models/{PIPELINE}",
    f"/models/{PIPELINE}/ready",
    f"/models/{PIPELINE}/config",
    "/models/stats",
    f"/models/{PIPELINE}/stats",
    f"/models/{PIPELINE}/versions/1/stats",
]

GUARDED_GRPC: dict[str, Callable[[Any, dict[str, str]], Any]] = {
    "index": lambda c, h: c.get_model_repository_index(headers=h),
    "load": lambda c, h: c.load_model(PIPELINE, headers=h),
    "unload": lambda c, h: c.unload_model(SPARE, headers=h),
    "system status": lambda c, h: c.get_system_shared_memory_status(headers=h),
    "system register": lambda c, h: c.register_system_shared_memory("mine", "/none", 8, headers=h),
    "system unregister": lambda c, h: c.unregister_system_shared_memory(headers=h),
    "cuda status": lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    "cuda register": lambda c, h: c.register_cuda_shared_memory("mine", b"AAAA", 0, 8, headers=h),
    "cuda unregister": lambda c, h: c.unregister_cuda_shared_memory(headers=h),
    "trace": lambda c, h: c.get_trace_settings(headers=h),
    "set trace": lambda c, h: c.update_trace_settings(settings={}, headers=h),
    "a model's trace": lambda c, h: c.get_trace_settings(PIPELINE, headers=h),
    "set a model's trace": lambda c, h: c.update_trace_settings(PIPELINE, {}, headers=h),
    "logging": lambda c, h: c.get_log_settings(headers=h),
    "set logging": lambda c, h: c.update_log_settings({}, headers=h),
}


@pytest.fixture
def key(served: Project) -> str:
    file = served.path / "build" / "key" / "admin.key"
    by_its_group = served.settings["FLAVOUR"] != "local"  # the server's, in a container
    assert file.stat().st_mode & 0o777 == (0o640 if by_its_group else 0o600)
    return file.read_text().strip()


def ask(
    served: Project, method: str, path: str, body: dict[str, Any] | bytes, **headers: str
) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection(served.http, timeout=30)
    sent = body if isinstance(body, bytes) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/v2{path}", sent if method == "POST" else None, named)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize("call", GUARDED, ids=lambda call: f"{call[0]} {call[1]}")
def test_over_http_only_the_key_opens(
    served: Project, key: str, call: tuple[str, str, dict[str, Any]]
) -> None:
    method, path, body = call
    assert ask(served, method, f"/{path}", body) == 403
    for wrong in (WRONG, "", key[:-1], f"{key}0", key.upper()):
        assert ask(served, method, f"/{path}", body, **{HEADER: wrong}) == 403
    status = ask(served, method, f"/{path}", body, **{HEADER: key})
    # There is no such region, and maybe no CUDA.
    assert status == 200 or ("sharedmemory" in path and status != 403)


@pytest.mark.parametrize("call", GUARDED_GRPC)
def test_over_grpc_only_the_key_opens(served: Project, key: str, call: str) -> None:
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        for headers in ({}, {GRPC_HEADER: WRONG}, {GRPC_HEADER: ""}, {HEADER: key}):
            with pytest.raises(InferenceServerException, match="admin key") as refused:
                GUARDED_GRPC[call](client, headers)
            assert refused.value.status() == "StatusCode.PERMISSION_DENIED"
        try:
            GUARDED_GRPC[call](client, {GRPC_HEADER: key})
        except InferenceServerException as fault:
            assert "register" in call or "cuda" in call
            assert "admin key" not in str(fault)


@pytest.mark.parametrize("path", OPEN)
def test_what_clients_need_is_open(served: Project, path: str) -> None:
    assert ask(served, "GET", path, {}) == 200


@everywhere
def test_pictures_are_answered_without_a_key(served: Project) -> None:
    length = {"Inference-Header-Content-Length": "0"}
    for headers in (length, length | {HEADER: WRONG}):
        assert ask(served, "POST", f"/models/{PIPELINE}/infer", picture(), **headers) == 200
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        assert client.is_server_live() and client.is_model_ready(PIPELINE)
        assert client.get_model_metadata(PIPELINE) and client.get_model_config(PIPELINE)


@everywhere
def test_no_process_shows_the_key(served: Project, key: str) -> None:
    """Nor does any have it in its environment."""
    shown, carried = [], []
    for process in psutil.process_iter(["cmdline"]):
        if any(key in word for word in process.info["cmdline"] or []):
            shown.append(process)
        try:
            if any(key in value for value in process.environ().values()):
                carried.append(process.name())
        except psutil.Error:  # ended, or another user's
            continue
    assert shown == [] and carried == []


@everywhere
def test_no_file_has_the_key_but_its_own(served: Project, key: str) -> None:
    """And on the bare host Envoy's configuration, which is read by its owner alone too."""
    found = {
        str(path.relative_to(served.path)): path.stat().st_mode & 0o777
        for path in served.path.rglob("*")
        if path.is_file() and not path.is_relative_to(served.path / ".venv")
        if key.encode() in path.read_bytes()
    }
    shared = served.settings["FLAVOUR"] != "local"  # with the server, by its group
    of_envoy = set() if shared else {"build/run/envoy.yaml"}
    wanted = dict.fromkeys(of_envoy, 0o600) | {"build/key/admin.key": 0o640 if shared else 0o600}
    assert found == wanted


@pytest.mark.parametrize("served", ["cpu", ON_A_GPU], indirect=True)
def test_docker_tells_nobody_the_key(served: Project, key: str) -> None:
    engine = docker.from_env()
    (container,) = engine.containers.list(ignore_removed=True, filters={"label": served.labels()})
    assert key not in json.dumps(container.attrs)
    image = container.image
    assert image and key not in json.dumps([image.attrs, image.history()])
    assert key.encode() not in container.logs()
    assert key not in json.dumps(container.top(ps_args="-ef"))


@everywhere
def test_the_commands_use_the_key(served: Project) -> None:
    assert PIPELINE in served.made("status")
    models = served.made("models")
    for model in ("preprocessing", served.network, "postprocessing", PIPELINE):
        assert model in models
    assert "mobilenet_v2" in models  # what the network was made from


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_commands_of_the_docs_are_obeyed(served: Project) -> None:
    operating = (ROOT / "docs" / "operating.md").read_text()
    index, load = blocks("**Controlling models with curl.**", operating)
    for command in (index, load):
        here = command.replace("localhost:8000", served.http).replace("curl", "curl -sS --fail")
        here = here.replace("resnet50_onnx", served.network)
        done = subprocess.run(here, shell=True, cwd=served.path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (PIPELINE in done.stdout) == (command is index)


def test_a_load_changes_nothing_where_nothing_changed(served: Project) -> None:
    """Python itself would have written into the models' folders after the start."""
    version = served.path / "build" / "live" / "postprocessing" / "1"
    before = [path.stat().st_mtime_ns for path in (version, *sorted(version.rglob("*")))]
    loads = served.made("logs").count("loading: postprocessing")
    told = served.made("load", TRITON_MODEL="postprocessing")
    assert "loaded: postprocessing, " in told and ", version 1\n" in told
    assert served.made("logs").count("loading: postprocessing") <= loads
    assert before == [path.stat().st_mtime_ns for path in (version, *sorted(version.rglob("*")))]


MODEL = """
import triton_python_backend_utils as utils


class TritonPythonModel:
    def execute(self, requests):
        return [utils.InferenceResponse([]) for _ in requests]
"""
CONFIG = """
name: "another"
backend: "python"
input [{name: "IN", data_type: TYPE_UINT8, dims: [1]}]
output [{name: "OUT", data_type: TYPE_UINT8, dims: [1]}]
"""


def test_load_and_unload(served: Project) -> None:
    another = served.path / "model_repository" / "another"
    (another / "1").mkdir(parents=True)
    (another / "config.pbtxt").write_text(CONFIG)
    (another / "1" / "model.py").write_text(MODEL)
    try:
        assert "loaded: another, version 1" in served.made("load", TRITON_MODEL="another")
        assert "another" in served.made("models")
        assert "unloaded: another" in served.made("unload", TRITON_MODEL="another")
        assert "is not loaded" in served.made("unload", TRITON_MODEL="another")
        (another / "1" / "model.py").write_text("raise ValueError('it is broken')")
        (line,) = error_lines(served.make("load", TRITON_MODEL="another").stderr)
        assert "it is broken" in line
        (another / "2").mkdir()
        (line,) = error_lines(served.make("load", TRITON_MODEL="another").stderr)
        assert "no model.py in another/2" in line
        (another / "config.pbtxt").write_text("name: ")
        (line,) = error_lines(served.make("load", TRITON_MODEL="another").stderr)
        assert "another/config.pbtxt is not a valid model config" in line and "; fix it" in line
    finally:
        for path in sorted(another.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        another.rmdir()


@pytest.mark.parametrize(
    ("command", "cause", "remedy"),
    [
        (("load",), "no TRITON_MODEL given", "TRITON_MODEL="),
        (("load", "TRITON_MODEL=nothing"), "no model nothing", PIPELINE),
        (("unload", "TRITON_MODEL=../run"), "no model ../run", PIPELINE),
        (("unload", f"TRITON_MODEL={PIPELINE}"), "is needed by the main pipeline", "make down"),
        (("unload", "TRITON_MODEL=preprocessing"), "is needed by the main pipeline", "make down"),
        (("load", f"TRITON_MODEL={SPARE}"), "load failed", "make logs"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    served: Project, command: tuple[str, ...], cause: str, remedy: str
) -> None:
    refused = served.make(*command)
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    assert cause in line and remedy in line and "Traceback" not in refused.stderr


@pytest.mark.skipif(not has_libb64(), reason="no perf_analyzer here")
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_a_measurement_shows_nobody_the_key(served: Project, key: str) -> None:
    assert not any(key in word for word in words_shown_while_measuring(served))
