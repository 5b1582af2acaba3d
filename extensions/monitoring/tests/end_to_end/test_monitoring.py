"""Alerts, by their own faults on a real server, and dashboards, by a real Prometheus."""

import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

import docker
from benchmark.rollouts import clients
from benchmark.torture.subject import PICTURE, Subject, harm
from bundle_serving.process.guard import HEADER
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.protocol import kserve
from extensions.monitoring import dashboards
from extensions.monitoring.tests.prometheus import Prometheus, faster, list_queries, watching
from scripts.base import files, lock
from tests.end_to_end.measuring.test_drift import answered
from tests.end_to_end.serving.test_beyond_this_machine import certificate_of_a_company, key_of
from tests.plugin import require_docker
from tests.project import ROOT, Project, free_ports, picture, run, wait_until
from tests.stand_ins import rehearse

KEDA = ROOT / "deploy" / "kubernetes" / "components" / "keda"

somewhere = pytest.mark.parametrize("served", ["local", "gpu"], indirect=True)

# More than wait, and more than may wait.
AT_ONCE = 800
AT_A_TIME = 6
DISK_MB = 1024


def started(project: Project) -> Subject:
    return Subject(project.root(), project.http, project.grpc)


@pytest.mark.rare
@somewhere
def test_every_query_of_every_dashboard_returns_something(served: Project, tmp_path: Path) -> None:
    with watching(served, tmp_path / "data") as prometheus, clients(served.http, served.grpc, 2):
        assert started(served).ask_picture(b"no picture") == 400
        for _ in range(2):
            answered(served, 0)
        for board, panel, query in list_queries():
            if board != "GPU":
                what = f"{board}, {panel}: {query}"
                wait_until(partial(returns, prometheus, query), what, 60)
        for protocol in ("http", "grpc"):
            labels = f'pipeline="{PIPELINE}",version!="",protocol="{protocol}",outcome="ok"'
            assert prometheus.query(f"bundle_request_duration_seconds_count{{{labels}}} > 0")


@pytest.mark.rare
@somewhere
def test_what_keda_asks_is_how_many_requests_are_in_flight(served: Project, tmp_path: Path) -> None:
    scaled = yaml.safe_load((KEDA / "scaledobject.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    # The operator adds that label; and a minute of load would be a minute of all cores.
    for given, here in (('{service="triton-bundle"}', ""), ("[1m]", "[10s]"), (" / CORES", "")):
        assert given in query
        query = query.replace(given, here)

    def in_flight() -> float:
        (found,) = prometheus.query(query) or [{"value": (0, 0)}]
        return float(found["value"][1])

    with (
        watching(served, tmp_path / "data") as prometheus,
        clients(served.http, served.grpc, AT_A_TIME),
    ):
        # Half of them ask over HTTP, half over gRPC: one half alone is not enough. On a busy
        # machine the clients too take their time between two questions.
        wait_until(lambda: in_flight() > 0.55 * AT_A_TIME, "all of them to count", 120)
        assert in_flight() < 1.2 * AT_A_TIME


def returns(prometheus: Prometheus, query: str) -> bool:
    found = prometheus.query(query.replace(dashboards.RATE, "30s"))
    return any(math.isfinite(float(each["value"][1])) for each in found)


class Watched:
    """A server of its own, with a small disk of its own where root may mount one, and what watches
    it."""

    def __init__(self, project: Project, prometheus: Prometheus, own_disk: bool) -> None:
        self.project, self.prometheus, self.own_disk = project, prometheus, own_disk

    @property
    def server(self) -> Subject:
        return started(self.project)

    @property
    def hands(self) -> Path:
        return self.project.path / "build" / "key" / "hands-off"


@pytest.fixture(scope="module", params=["local", "gpu"])
def watched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        if request.param == "gpu":
            require_docker()
            project = stack.enter_context(rehearse(folder / "served"))
        else:
            project = Project.copy(folder / "served", FLAVOUR="local")
        own_disk = stack.enter_context(small_disk(project.path / "build"))
        if request.param == "local":
            project.take(request.getfixturevalue("exported"))
        stack.callback(project.end)
        project.made("up")
        prometheus = stack.enter_context(watching(project, folder / "data", LATENCY_MS="1000"))
        yield Watched(project, prometheus, own_disk)


def network_or_step(project: Project) -> str:
    """A plan computes in the server itself."""
    return "preprocessing" if project.settings["FLAVOUR"] == "gpu" else project.network


@contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    path.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "disk", str(path)]
    mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def flood(server: Subject) -> Iterator[None]:
    """More requests at once than may wait, over gRPC, until the block ends."""
    free, done = threading.Semaphore(AT_ONCE), threading.Event()

    def ask_on() -> None:
        with grpc.insecure_channel(server.grpc) as channel:
            ask, message = kserve.stub(channel).ModelInfer, server.message(PICTURE)
            while not done.wait(0.002):  # refusals come at once
                free.acquire()
                ask.future(message, timeout=60).add_done_callback(lambda _: free.release())
            for _ in range(AT_ONCE):
                free.acquire()

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.rare
def test_too_much_load(watched: Watched) -> None:
    budget = [
        f"ErrorBudgetBurns{how}/{objective}"
        for how in ("Fast", "Slowly")
        for objective in ("answered", "latency")
    ]
    fired = ("Refusing", "QueueNearlyFull", *budget)
    assert not watched.prometheus.firing() & {*fired}
    with flood(watched.server):
        watched.prometheus.until_firing(*fired)
    watched.prometheus.until_over(*fired)


@pytest.mark.rare
def test_half_dead_and_not_ready(watched: Watched) -> None:
    server, prometheus = watched.server, watched.prometheus
    before = wait_until(
        lambda: server.ask_picture() == 200 and server.expected_processes(), "an answer"
    )
    with lock.hands_off(watched.hands):
        harm(server.running()[network_or_step(watched.project)][0], signal.SIGKILL)
        prometheus.until_firing("HalfDead")
        assert "NotReady" not in prometheus.firing()
        key = {HEADER: watched.project.admin_key}
        assert server.status(f"/repository/models/{PIPELINE}/unload", b"{}", **key) == 200
        prometheus.until_firing("NotReady")
    wait_until(lambda: server.is_whole(before), "the server to be whole again")
    prometheus.until_over("HalfDead", "NotReady")


@pytest.mark.rare
def test_failing_again_and_again(watched: Watched) -> None:
    server = watched.server
    before = wait_until(
        lambda: server.ask_picture() == 200 and server.expected_processes(), "an answer"
    )
    network = network_or_step(watched.project)
    for victim in ("preprocessing", network, "postprocessing", "envoy"):
        harm(server.running()[victim][0], signal.SIGKILL)
    watched.prometheus.until_firing("KeepsFailing")
    wait_until(lambda: server.is_whole(before), "the server to be whole again")
    watched.prometheus.until_over("KeepsFailing")


@pytest.mark.rare
def test_a_version_that_nobody_asks_any_more(watched: Watched) -> None:
    rise = 'increase(bundle_request_duration_seconds_count{outcome="ok"}[30s]) > 0'
    wait_until(
        lambda: watched.server.ask_picture() == 200 and watched.prometheus.query(rise),
        "the requests",
    )
    assert "VersionWithoutTraffic" not in watched.prometheus.firing()
    watched.prometheus.until_firing("VersionWithoutTraffic")

    def asked_again() -> bool:
        assert watched.server.ask_picture() == 200
        return "VersionWithoutTraffic" not in watched.prometheus.firing()

    wait_until(asked_again, "the alert to end")


@pytest.mark.rare
def test_answers_that_drift(watched: Watched) -> None:
    answered(watched.project, 0)  # the reference
    answered(watched.project, 255)
    watched.prometheus.until_firing("AnswersDrift")
    assert "(a shift)" in watched.project.made("drift")
    watched.project.made("drift", NEW="1")
    watched.prometheus.until_over("AnswersDrift")


@pytest.mark.rare
def test_a_disk_that_fills(watched: Watched) -> None:
    if not watched.own_disk:
        pytest.skip("no disk can be mounted here")
    fill = watched.project.path / "build" / "fill"
    room = shutil.disk_usage(fill.parent)
    with fill.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.free - room.total // 20)
    watched.prometheus.until_firing("DiskNearlyFull")
    fill.unlink()
    watched.prometheus.until_over("DiskNearlyFull")


def stop(project: Project) -> None:
    """Not what watches it, which `make down` stops where both are in containers."""
    if project.settings["FLAVOUR"] == "local":
        project.made("down")
    else:
        run("docker", "stop", project.container())


@pytest.mark.rare
def test_a_server_that_is_gone(watched: Watched) -> None:
    stop(watched.project)
    watched.prometheus.until_firing("ServerGone")
    watched.project.made("up")
    watched.prometheus.until_over("ServerGone")


@pytest.mark.rare
def test_a_certificate_that_ends_on_a_server_with_keys(exported: Path, tmp_path: Path) -> None:
    """Prometheus has a key and trusts the certificate, or it would see nothing at all."""

    def certificate(name: str, days: int) -> dict[str, str]:
        (tmp_path / name).mkdir()
        made = certificate_of_a_company(tmp_path / name, days)
        return {each: made[each] for each in ("TLS_CERT", "TLS_KEY")}

    old = certificate("old", 2)
    project = Project.copy(tmp_path / "beyond", FLAVOUR="local", BIND="0.0.0.0", **old)
    project.take(exported)
    key_of(project, "ann")
    try:
        project.made("up")
        with watching(project, tmp_path / "data") as prometheus:
            prometheus.until_firing("CertificateEnds")
            key = project.path / "build" / "monitoring" / "server.key"
            assert key.stat().st_mode & 0o077 == 0
            project.settings |= certificate("new", 90)
            project.made("up")
            prometheus.reload()
            prometheus.until_over("CertificateEnds")
            wait_until(lambda: prometheus.query("up == 1"), "the new certificate to be trusted")
    finally:
        project.end()


@pytest.fixture(params=["cpu", "gpu"])
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    require_docker()
    ports = dict(
        zip(("PROMETHEUS_PORT", "ALERTMANAGER_PORT"), map(str, free_ports(2)), strict=True)
    )
    if request.param == "gpu":
        with rehearse(tmp_path) as project:
            project.settings |= ports
            yield project
        return
    project = Project.copy(tmp_path / "contained", FLAVOUR="cpu", **ports)
    made = request.getfixturevalue("exported") / "versions"
    files.link_tree(made, project.path / "build" / "versions")
    try:
        yield project
    finally:
        project.make("clean")


@pytest.mark.rare
def test_in_containers(contained: Project) -> None:
    """make monitoring starts them; memory that comes near its limit is told to Alertmanager."""
    project, ports = contained, contained.settings
    assert "make up" in project.make("monitoring").stderr
    project.made("up")
    project.made("monitoring")
    prometheus = Prometheus(project, int(ports["PROMETHEUS_PORT"]))
    containers = {
        each.labels["com.docker.compose.service"]: each
        for each in docker.from_env().containers.list(
            ignore_removed=True,
            filters={"label": f"com.docker.compose.project={project.compose_project}"},
        )
    }
    for name in ("prometheus", "alertmanager"):
        shut_in(containers[name])
    prometheus.hurry()
    assert faster("[5m] for: 1h") == "[10s] for: 120s"
    wait_until(lambda: prometheus.query("up == 1"), "Prometheus to see the server")
    used = settled(prometheus)
    limit = containers["server"].attrs["HostConfig"]["Memory"]
    tight = round(used / 0.94)
    containers["server"].update(mem_limit=tight, memswap_limit=tight)
    prometheus.until_firing("MemoryNearLimit")
    wait_until(lambda: "MemoryNearLimit" in notified(ports), "Alertmanager to be told")
    containers["server"].update(mem_limit=limit, memswap_limit=limit)
    prometheus.until_over("MemoryNearLimit")
    assert Subject(0, project.http, project.grpc).ask_picture(picture()) == 200

    assert "Prometheus and Alertmanager stopped" in project.made("down")
    label = f"com.docker.compose.project={project.compose_project}"
    left = docker.from_env().containers.list(
        all=True, ignore_removed=True, filters={"label": label}
    )
    assert [each.name for each in left] == []


def settled(prometheus: Prometheus) -> float:
    """The memory that is used once what the start took has been given back."""
    before, used = 0.0, 1.0
    while abs(used - before) > 0.01 * used:
        time.sleep(10)
        before, used = used, float(prometheus.query("bundle_memory_used_bytes")[0]["value"][1])
    return used


@pytest.mark.rare
def test_in_containers_beside_a_server_with_keys(contained: Project) -> None:
    """Prometheus reads its key and the server's certificate, and nobody else does."""
    contained.settings["BIND"] = "0.0.0.0"
    key_of(contained, "ann")
    contained.made("up")
    contained.made("monitoring")
    prometheus = Prometheus(contained, int(contained.settings["PROMETHEUS_PORT"]))
    wait_until(lambda: prometheus.query("up == 1"), "Prometheus to see the server")
    assert prometheus.query('door_requests_total{client="monitoring"} > 0')
    assert (contained.path / "build/monitoring/server.key").stat().st_mode & 0o007 == 0


def notified(ports: dict[str, str]) -> set[str]:
    url = f"http://127.0.0.1:{ports['ALERTMANAGER_PORT']}/api/v2/alerts"
    with urllib.request.urlopen(url) as answer:
        return {each["labels"]["alertname"] for each in json.load(answer)}


def shut_in(container: Any) -> None:
    host = container.attrs["HostConfig"]
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    published = [each for ports in host["PortBindings"].values() for each in ports]
    assert {each["HostIp"] for each in published} == {"127.0.0.1"}
    assert container.attrs["Config"]["User"] == "65532:65532"
