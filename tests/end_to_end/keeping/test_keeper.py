"""What dies, hangs or is taken out of a server that serves comes back, with nobody's help."""

import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmark.rollouts import Load, clients
from benchmark.torture.bystanders import GRACE_S, Bystanders, Wait
from benchmark.torture.subject import PARTS, Subject, harm, stands_still
from bundle_serving.process.guard import HEADER
from scripts.base import lock
from tests.project import Project, wait_until

# What was harmed goes on healing for a while, so no other test shares this server.
PIPELINE = "ensemble_python_resnet50"
# Of these there is another one, or the door asks again until there is.
NETWORK = "resnet50_onnx"
REPLACED = {"preprocessing", NETWORK, "postprocessing"}
KINDS = REPLACED | {*PARTS}

# More than the server itself takes.
CLIENTS, PAUSE_S, ANSWER_S, KILLS = 8, 0.25, 90, 3

# Beyond it the machine is to blame.
HEALED_S = 120


def subject(served: Project) -> Subject:
    return Subject(served.root(), served.http, served.grpc)


def wait_for_everyone(served: Project) -> dict[str, int]:
    """How many processes each kind has. A plan has none: it computes in the server itself."""
    server, plans = subject(served), {NETWORK} if served.network != NETWORK else set()
    found: dict[str, int] = wait_until(
        lambda: server.numbers().keys() >= KINDS - plans and server.expected_processes(), "everyone"
    )
    return found


def require_process(served: Project, victim: str) -> None:
    if victim == NETWORK != served.network:
        pytest.skip("a plan computes in the server itself")


def healed(served: Project, harmed: Callable[[], None]) -> list[Wait]:
    """What bystanders got, from the harm on."""
    server = subject(served)
    before = wait_for_everyone(served)
    wait_until(lambda: server.is_whole(before), "the server to be whole", HEALED_S)
    with Bystanders(server) as bystanders:
        began = time.monotonic()
        harmed()
        wait_until(lambda: server.is_whole(before), "the server to be whole again", HEALED_S)
        wait_until(lambda: any(wait.began > began for wait in bystanders.waits), "an answer")
    # A keeper that has just begun calls nothing ready before it has asked.
    wait_until(lambda: served.make("status").returncode == 0, "status to find it well")
    return [wait for wait in bystanders.waits if wait.began > began]


def unload(served: Project) -> None:
    path = f"/repository/models/{PIPELINE}/unload"
    assert subject(served).status(path, b"{}", **{HEADER: served.admin_key}) == 200


def failed_later(waits: list[Wait]) -> list[Wait]:
    """Of those that cannot have been in the process that was harmed."""
    return [wait for wait in waits if wait.began > waits[0].began + GRACE_S and wait.status != 200]


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("victim", sorted(KINDS))
def test_a_process(served: Project, victim: str, how: signal.Signals) -> None:
    require_process(served, victim)
    process = wait_until(lambda: subject(served).running().get(victim), victim)[0]

    def harmed() -> None:
        harm(process, how)
        wait_until(lambda: not stands_still(process), f"{victim} to be woken or gone")

    waits = healed(served, harmed)
    assert {wait.status for wait in waits} <= {200, 404, 500, 503, 0}
    if victim == "keeper":
        assert {wait.status for wait in waits} == {200}  # it stands in nobody's way
    if how == signal.SIGKILL and victim in REPLACED:
        assert not failed_later(waits)


def wait_until_all_go_on(load: Load) -> None:
    """So that nobody who waits is hit twice."""
    enough = load.answered + 5 * CLIENTS
    wait_until(lambda: load.answered > enough, "all to go on")


@pytest.mark.parametrize("victim", sorted(REPLACED))
def test_killed_steps_cost_no_request(served: Project, victim: str) -> None:
    """At some thirty requests a second, half of them over gRPC."""
    require_process(served, victim)
    server = subject(served)
    before = wait_for_everyone(served)
    with clients(served.http, served.grpc, CLIENTS, PAUSE_S, timeout=ANSWER_S) as load:
        for _ in range(KILLS):
            wait_until(lambda: server.is_whole(before), "the server to be whole", HEALED_S)
            harm(server.running()[victim][0], signal.SIGKILL)
            wait_until(lambda: server.is_whole(before), "the server to be whole again", HEALED_S)
            wait_until_all_go_on(load)
    print(f"\n{victim}: {len(load.faults)} of {load.answered + len(load.faults):,} requests failed")
    assert load.faults == [] and load.answered


def test_a_pipeline_that_was_unloaded(served: Project) -> None:
    """Triton goes on saying that it is ready."""
    healed(served, lambda: unload(served))
    assert f"{PIPELINE} was not loaded: loaded it" in served.made("status")


def test_what_was_done_is_shown(served: Project) -> None:
    model = wait_until(lambda: subject(served).running().get("postprocessing"), "the model")[0]
    healed(served, model.kill)
    line = "postprocessing: it lacked a process; reloaded it"
    assert line in served.made("status")
    assert line in served.made("logs")
    connection = http.client.HTTPConnection("127.0.0.1", int(served.settings["METRICS_PORT"]))
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    connection.close()
    assert 'bundle_restored_total{what="model"}' in metrics and "bundle_ready 1" in metrics
    assert "nv_inference_request_success" in metrics


def test_half_dead_and_dead(served: Project) -> None:
    """While the keeper's hands are held off: half of a model, and the whole pipeline."""
    require_process(served, NETWORK)
    server = subject(served)
    before = wait_for_everyone(served)
    with lock.hands_off(served.path / "build" / "key" / "hands-off"):
        harm(server.running()[NETWORK][0], signal.SIGKILL)
        wait_until(lambda: f"{NETWORK} lacks" in served.make("status").stderr, "status to see it")
        assert server.status("/health/ready") == 200
        assert {server.ask_picture() for _ in range(6)} == {200}  # by the other half
        unload(served)
        wait_until(lambda: server.status("/health/ready") == 503, "readiness to tell")
    wait_until(lambda: server.is_whole(before), "the server to be whole again", HEALED_S)
    assert "up already" in served.made("up")


def test_a_load_that_fails_leaves_it_ready(served: Project) -> None:
    broken = served.path / "build" / "live" / "broken"
    broken.mkdir()
    try:
        (broken / "config.pbtxt").write_text('backend: "python"')
        path = "/repository/models/broken/load"
        assert subject(served).status(path, b"{}", **{HEADER: served.admin_key}) != 200
        assert subject(served).status("/health/ready") == 200
    finally:
        shutil.rmtree(broken)


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
    subject(served).ask_picture()
    processes = psutil.Process(served.root()).children(recursive=True)
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
