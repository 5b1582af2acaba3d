"""What dies, hangs or is taken out of a server that serves comes back, with nobody's help."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import docker
from bundle_serving.guard import HEADER
from tests.project import Project, picture, wait_until

# What was harmed goes on healing for a while, so no other test shares this server.
pytestmark = pytest.mark.long

PIPELINE = "ensemble_python_resnet50"
STUB = "triton_python_backend_stub"
KINDS = ("keeper", "door", "envoy", "server", "preprocessing", "resnet50_onnx", "postprocessing")

# Beyond it the machine is to blame.
HEALED_S = 120


def root(served: Project) -> psutil.Process:
    """The process that `make up` started; in a container what Docker did."""
    if served.settings["FLAVOUR"] == "local":
        return psutil.Process(json.loads((served.path / "build/run/state.json").read_text())["pid"])
    label = f"com.docker.compose.project.working_dir={served.path}"
    (container,) = docker.from_env().containers.list(filters={"label": label})
    return psutil.Process(container.attrs["State"]["Pid"])


def kind(process: psutil.Process) -> str | None:
    words = process.cmdline()
    if not words:
        return None
    if words[0].endswith(STUB) and len(words) > 8:
        return words[8].rpartition("_")[0].removesuffix("_0")
    if words[0].endswith("tritonserver"):
        return "server"
    if "envoy" in Path(words[0]).name:
        return "envoy"
    if "bundle_serving.keeper" in words and "bundle_serving.afresh" not in words:
        return "keeper"
    return "door" if "bundle_door" in words else None


def running(served: Project) -> dict[str, list[psutil.Process]]:
    """Those that could compute if they were asked."""
    found: dict[str, list[psutil.Process]] = {name: [] for name in KINDS}
    for process in root(served).children(recursive=True):
        try:
            if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                found.setdefault(kind(process) or "", []).append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def stands_still(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def numbers(served: Project) -> dict[str, int]:
    return {name: len(processes) for name, processes in running(served).items() if name}


def status(served: Project, path: str, body: bytes | None = None, **headers: str) -> int:
    """0 where there was no answer."""
    connection = http.client.HTTPConnection(served.http, timeout=60)
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, f"/v2{path}", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def asked(served: Project, image: bytes) -> int:
    headers = {"Inference-Header-Content-Length": "0"}
    return status(served, f"/models/{PIPELINE}/infer", image, **headers)


def whole(served: Project, before: dict[str, int]) -> bool:
    """Everyone is there, and whoever is asked answers, each of them in his turn."""
    if numbers(served) != before or status(served, "/health/ready") != 200:
        return False
    image = picture((64, 48))
    return all(asked(served, image) == 200 for _ in range(8))


@contextmanager
def bystanders(served: Project) -> Iterator[list[int]]:
    """What is answered to those who go on asking meanwhile."""
    answers: list[int] = []
    done = threading.Event()
    image = picture((64, 48))

    def ask_on() -> None:
        while not done.wait(0.05):
            answers.append(asked(served, image))

    threads = [threading.Thread(target=ask_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        done.set()
        for thread in threads:
            thread.join()


def healed(served: Project, harm: Callable[[], None]) -> list[int]:
    """What bystanders got from the harm to the healing."""
    before = wait_until(lambda: all(numbers(served).values()) and numbers(served), "everyone", 60)
    wait_until(lambda: whole(served, before), "the server to be whole", HEALED_S)
    with bystanders(served) as answers:
        harm()
        wait_until(lambda: whole(served, before), "the server to be whole again", HEALED_S)
        healed_at = len(answers)
        wait_until(lambda: 200 in answers[healed_at:], "a good answer", HEALED_S)
    assert set(answers) <= {200, 404, 500, 503, 0} and 200 in answers
    served.made("status")
    return answers


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("victim", KINDS)
def test_a_process(served: Project, victim: str, how: signal.Signals) -> None:
    process = wait_until(lambda: running(served)[victim], victim)[0]

    def harm() -> None:
        process.send_signal(how)
        wait_until(lambda: not stands_still(process), f"{victim} to be woken or gone")

    answers = healed(served, harm)
    if victim == "keeper":
        assert set(answers) == {200}  # it stands in nobody's way


def test_a_pipeline_that_was_unloaded(served: Project) -> None:
    """The server goes on saying that it is ready."""

    def unload() -> None:
        path = f"/repository/models/{PIPELINE}/unload"
        assert status(served, path, b"{}", **{HEADER: served.admin_key}) == 200

    healed(served, unload)
    assert f"{PIPELINE} was not loaded: loaded it" in served.made("status")


def test_what_was_done_is_told(served: Project) -> None:
    model = wait_until(lambda: running(served)["postprocessing"], "the model")[0]
    healed(served, model.kill)
    told = "postprocessing: it lacked a process; made it anew"
    assert told in served.made("status")
    assert told in served.made("logs")
    connection = http.client.HTTPConnection("127.0.0.1", int(served.settings["METRICS_PORT"]))
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    connection.close()
    assert 'bundle_restored_total{what="model"}' in metrics and "bundle_ready 1" in metrics
    assert "nv_inference_request_success" in metrics


# Run as somebody else: what it comes to of what is named.
INTRUDER = """
import socket, sys
for path in sys.argv[1:]:
    try:
        if path.startswith("/dev/shm"):
            open(path, "rb").read(1)
        else:
            socket.socket(socket.AF_UNIX).connect(path)
        print(path)
    except OSError:
        pass
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_another_user_reaches_the_ports_alone(served: Project) -> None:
    asked(served, picture())
    processes = root(served).children(recursive=True)
    ports = {
        connection.laddr.port
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    assert ports == {int(served.settings[name]) for name in names}

    sockets = {
        path
        for process in processes
        for connection in process.net_connections("unix")
        if (path := str(connection.laddr)) and not path.startswith("@")
    }
    assert any(path.endswith("grpc:1") for path in sockets)
    for folder in {Path(path).parent for path in sockets}:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert served.shared_memory()
    tempting = [*sockets, *map(str, served.shared_memory())]
    intruded = subprocess.run(
        ["/usr/bin/python3", "-c", INTRUDER, *tempting],
        user="nobody",
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert intruded.returncode == 0 and intruded.stdout == ""
