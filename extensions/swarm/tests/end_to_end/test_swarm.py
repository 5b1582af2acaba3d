"""A Docker Swarm of two engines: three servers, a balancer on each node, and what happens to
requests when some of it goes, comes, changes or stands still.

`-s` shows what was measured.
"""

import http.client
import json
import os
import re
import shutil
import ssl
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest
from onnx import TensorProto
from tritonclient.grpc.service_pb2 import ModelInferRequest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from benchmark.rollouts import Load, clients
from bundle_serving.address import SERVER_HEADER
from bundle_serving.infer import LENGTH
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from extensions.swarm.tests import swarm_nodes
from extensions.swarm.tests.swarm_nodes import HOST, Node, join
from scripts.base import files
from tests.networks import tiny
from tests.plugin import require_docker
from tests.project import Project, error_lines, free_ports, picture, run, wait_until
from tests.sessions import asked_by_sessions, list_chosen

pytestmark = pytest.mark.rare

PHOTO = picture()
CLIENTS = 8
# Another pipeline, beside the main one.
OTHER = "tiny"
SERVICE = "com.docker.swarm.service.name"


@dataclass
class Swarm:
    project: Project
    nodes: list[Node]

    def make(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """On the first node, which is the manager."""
        first = self.nodes[0]
        command = [*first.inside, "make", "--no-print-directory", *words]
        return self.project.run_command(*command, DOCKER_HOST=first.host, **settings)

    def made(self, *words: str, **settings: str) -> str:
        done = self.make(*words, **settings)
        assert done.returncode == 0, f"make {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def name(self) -> str:
        return self.project.settings["COMPOSE_PROJECT_NAME"]

    @property
    def certificate(self) -> Path:
        return self.project.path / "build" / "tls" / "cert.pem"

    def at(self, port: str, node: int = 0) -> str:
        return f"{self.nodes[node].address}:{self.project.settings[port]}"

    @contextmanager
    def asked(self) -> Iterator[Load]:
        """From outside, over HTTP and gRPC, until the block ends; none may fail."""
        with self.clients() as load:
            yield load
        assert load.faults == [], f"{len(load.faults)} of {load.answered:,} failed"
        assert load.answered

    def clients(self) -> AbstractContextManager[Load]:
        return clients(
            f"https://{self.at('HTTP_PORT')}",
            f"grpcs://{self.at('GRPC_PORT')}",
            CLIENTS,
            pause=0.02,
            api_key=self.project.admin_key,
            ca_file=str(self.certificate),
            server_name="localhost",
        )

    def connection(self, node: int = 0) -> http.client.HTTPSConnection:
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        trusted.check_hostname = False
        host, port = self.at("HTTP_PORT", node).split(":")
        return http.client.HTTPSConnection(host, int(port), timeout=60, context=trusted)

    def ask(
        self, connection: http.client.HTTPSConnection, to: str = "", path: str = "/classify"
    ) -> str:
        """Which server answered."""
        headers = {"authorization": f"Bearer {self.project.admin_key}"}
        headers |= {SERVER_HEADER: to} if to else {}
        connection.request("POST", path, PHOTO, headers | {LENGTH: "0"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return answer.headers[SERVER_HEADER]

    def running(self, node: int | None = None) -> list[tuple[str, str]]:
        """Node and task of each server that answers, as the manager says."""
        form = "{{.Node}} {{.ID}} {{.CurrentState}}"
        words = ["--filter", "desired-state=running", "--format", form, f"{self.name}_server"]
        lines = self.nodes[0].docker("service", "ps", *words).splitlines()
        found = [line.split() for line in lines]
        names = {each[0] for each in found} if node is None else {f"node{node + 1}"}
        return [(each[0], each[1]) for each in found if each[2] == "Running" and each[0] in names]

    def settled(self, count: int, node: int | None = None) -> float:
        """Until so many servers run, and nowhere else; the seconds that it took."""
        began = time.monotonic()
        what = f"{count} servers"
        wait_until(lambda: len(self.running(node)) == len(self.running()) == count, what)
        return time.monotonic() - began

    def containers(self, node: int) -> list[str]:
        label = f"label={SERVICE}={self.name}_server"
        return self.nodes[node].docker("ps", "--quiet", "--filter", label).split()


@contextmanager
def times(swarm: Swarm, threads: int = 4) -> Iterator[tuple[list[float], Counter[str]]]:
    """How long each answer takes, in ms, and whose it is."""
    took: list[float] = []
    by: Counter[str] = Counter()
    stop = threading.Event()

    def ask() -> None:
        connection = swarm.connection()
        while not stop.is_set():
            began = time.monotonic()
            by[swarm.ask(connection)] += 1
            took.append(1000 * (time.monotonic() - began))

    running = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield took, by
    finally:
        stop.set()
        for thread in running:
            thread.join()


def p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[-1]


@contextmanager
def changed(swarm: Swarm, function: str, program: str) -> Iterator[None]:
    """What a version is published with."""
    file = swarm.project.path / "model_repository" / "postprocessing" / "1" / "model.py"
    before, asked = file.read_text(), 'tensor(request, "INPUT_0")'
    assert asked in before
    file.write_text(before.replace(asked, f"{function}({asked})") + program)
    try:
        yield
    finally:
        file.write_text(before)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Iterator[Swarm]:
    require_docker()
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    folder = tmp_path_factory.mktemp("swarm")
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT", "S3_PORT")
    ports = dict(zip(names, map(str, free_ports(4)), strict=True))
    # It only ends a hang: on a busy machine a server reads S3 for minutes.
    project = Project.copy(folder / "bundle", SAMPLES="", START_TIMEOUT="900", **ports)
    project.settings["COMPOSE_PROJECT_NAME"] = f"swarm-{project.path.name}"
    # Later commands say nothing of networks.
    del project.settings["ARCH"], project.settings["WEIGHTS"]
    try:
        project.made("up", FLAVOUR="local", ARCH="drawn", WEIGHTS=str(trained))
        network = tiny(folder / "tiny.onnx", TensorProto.FLOAT)
        project.made("add-model", FLAVOUR="local", NAME=OTHER, ONNX=str(network))
        project.made("down")
        with swarm_nodes.of(2, folder / "nodes") as nodes:
            load_image(project, nodes[0])
            made = Swarm(project, nodes)
            refused = made.make("swarm-up")
            assert "make keys ADD=ann" in error_lines(refused.stderr)[0]
            made.made("keys", "ADD=ann")
            refused = made.make("swarm-up")
            assert "not a manager of a swarm" in error_lines(refused.stderr)[0]
            join(nodes)
            made.made("swarm-load", f"NODES={nodes[1].host}")
            made.made("swarm-up", "REPLICAS=1")
            project.serve_from_s3(HOST)
            began = time.monotonic()
            made.made("swarm-up", "REPLICAS=3")
            print(f"\none from a folder becomes 3 from S3: {time.monotonic() - began:.0f} s")
            yield made
            made.make("swarm-down")
    finally:
        project.make("s3-down")
        project.make("clean", FLAVOUR="cpu")


def load_image(project: Project, node: Node) -> None:
    """As a pack brings it, so that the node builds none."""
    build = ["docker", "compose", "--progress", "quiet", "build", "server"]
    subprocess.run(build, cwd=project.path, env=project.environment(), check=True)
    image = f"{project.settings['COMPOSE_PROJECT_NAME']}-server"
    run("sh", "-c", f"docker save {image} | docker --host {node.host} load --quiet")
    id = run("docker", "image", "inspect", "--format", "{{.Id}}", image).strip()
    files.write(project.path / "build" / "images.json", json.dumps({"server": id}))


def test_it_answers_on_every_node_and_says_where_it_runs(swarm: Swarm) -> None:
    photo = swarm.project.path / "photo.jpg"
    photo.write_bytes(PHOTO)
    assert "drawn" in swarm.made("classify", f"IMG={photo}")
    status = swarm.made("status")
    assert status.count("server.") == 3 and status.count("balancer") == 2
    assert {"node1", "node2"} <= {*status.split()}
    assert "version 1 live" in swarm.made("history")
    assert "resnet50_onnx" in swarm.made("models")
    wait_until(lambda: "/infer " in swarm.made("logs"), "the access log")
    assert "@node2 " in swarm.made("logs", "SINCE=1h")
    for command in ("load", "unload", "drift", "monitoring"):
        refused = swarm.make(command, "TRITON_MODEL=resnet50_onnx")
        assert "servers are many" in error_lines(refused.stderr)[0]
    for node in range(2):
        connection = swarm.connection(node)
        connection.request("GET", "/v2/health/ready")
        assert connection.getresponse().status == 200


def test_each_request_is_balanced_whatever_its_connection(swarm: Swarm) -> None:
    connection = swarm.connection()
    over_http = Counter(swarm.ask(connection) for _ in range(90))
    (first, *_) = over_http
    assert {swarm.ask(connection, to=first) for _ in range(20)} == {first}

    trusted = grpc.ssl_channel_credentials(swarm.certificate.read_bytes())
    named = [("grpc.ssl_target_name_override", "localhost")]
    request = ModelInferRequest(model_name=PIPELINE, raw_input_contents=[PHOTO])
    request.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(PHOTO)])
    key = [("authorization", f"Bearer {swarm.project.admin_key}")]
    over_grpc: Counter[str] = Counter()
    with grpc.secure_channel(swarm.at("GRPC_PORT"), trusted, named) as channel:
        stub = GRPCInferenceServiceStub(channel)
        for _ in range(90):
            _, call = stub.ModelInfer.with_call(request, metadata=key)
            over_grpc[dict(call.initial_metadata())[SERVER_HEADER]] += 1
    print(f"\n90 over one connection: HTTP {[*over_http.values()]}, gRPC {[*over_grpc.values()]}")
    assert len(over_http) == len(over_grpc) == 3
    assert min(*over_http.values(), *over_grpc.values()) >= 10
    for server in over_http:
        assert swarm.ask(connection, server, f"/v2/models/{OTHER}/infer") == server


def test_a_killed_server_costs_no_request(swarm: Swarm) -> None:
    with swarm.asked():
        swarm.nodes[1].docker("kill", swarm.containers(1)[0])
        wait_until(lambda: len(swarm.running()) == 2, "the swarm to see it")
        print(f"\na server killed, another one answers after {swarm.settled(3):.0f} s")


@pytest.mark.parametrize("how", ["a tenth of a core", "a stop"])
def test_others_take_the_part_of_a_slow_server(swarm: Swarm, how: str) -> None:
    slow, node = swarm.containers(1)[0], swarm.nodes[1]
    with times(swarm) as (took, by):
        wait_until(lambda: len(took) >= 200, "answers before")
        before, seen = p99(took), by.copy()
        if how == "a stop":
            node.docker("pause", slow)
        else:
            node.docker("update", "--cpus", "0.1", slow)
        wait_until(lambda: len(took) >= 600, "answers meanwhile")
        during = p99(took[200:])
        shares = {server: by[server] - seen[server] for server in by}
        if how == "a stop":
            node.docker("unpause", slow)
        else:
            node.docker("update", "--cpus", "2", slow)
        mark = len(took)
        swarm.settled(3)
        wait_until(lambda: len(took) >= mark + 200, "answers after")
        after = p99(took[mark:])
    least, *others = sorted(shares.values())
    print(f"\n{how}: {least} of {sum(shares.values())} answers were its; others {others}")
    print(f"p99 {before:.0f} ms before, {during:.0f} during, {after:.0f} after")
    assert least < min(others)


def test_an_engine_that_loses_its_power_costs_no_request(swarm: Swarm) -> None:
    manager, lost = swarm.nodes
    with swarm.asked():
        lost.kill()
        print(f"\nan engine killed, as many servers after {swarm.settled(3, node=0):.0f} s")
        lost.start()
        state = ["node", "ls", "--format", "{{.Status}}"]
        wait_until(lambda: {*manager.docker(*state).split()} == {"Ready"}, "both nodes")
        told = swarm.made("scale", "REPLICAS=4")
        assert "2 on node1, 2 on node2" in told, "it is used again"
        swarm.made("scale", "REPLICAS=3")


def test_a_drained_node_costs_no_request(swarm: Swarm) -> None:
    manager = swarm.nodes[0]
    availability = ["node", "update", "--availability"]
    with swarm.asked():
        manager.docker(*availability, "drain", "node2")
        try:
            print(f"\na node drained: {swarm.settled(3, node=0):.0f} s")
        finally:
            manager.docker(*availability, "active", "node2")


def test_with_a_new_certificate_a_balancer_has_servers(swarm: Swarm) -> None:
    """Its node's ports are closed while it is replaced itself, and no longer."""
    answers, stop, seen = list[tuple[float, int]](), threading.Event(), ssl.create_default_context()
    seen.check_hostname, seen.verify_mode = False, ssl.CERT_NONE
    host, port = swarm.at("HTTP_PORT").split(":")

    def ask() -> None:
        while not stop.wait(0.2):
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=seen)
                with closing(connection):
                    connection.request("GET", "/v2/health/ready")
                    answers.append((time.monotonic(), connection.getresponse().status))

    before = swarm.certificate.read_text()
    swarm.certificate.unlink()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        swarm.made("swarm-up")
    finally:
        stop.set()
        asking.join()
    assert swarm.certificate.read_text() != before
    refused = [at for at, status in answers if status != 200]
    print(f"\n{len(refused)} of {len(answers)} answers were refusals")
    assert not refused or refused[-1] - refused[0] < 10
    with swarm.asked() as load:
        wait_until(lambda: load.answered > 100, "answers of all")


def test_more_and_fewer_servers_cost_no_request(swarm: Swarm) -> None:
    with swarm.asked():
        for count in ("2", "4", "1", "3"):
            began = time.monotonic()
            swarm.made("scale", f"REPLICAS={count}")
            print(f"\nscaled to {count}: {time.monotonic() - began:.0f} s")
            assert swarm.made("status").count("server.") == int(count)
    refused = swarm.make("scale")
    assert "no REPLICAS given" in error_lines(refused.stderr)[0]
    (line,) = error_lines(swarm.make("scale", "REPLICAS=500").stderr)
    assert "REPLICAS=500, and the swarm has 2 nodes with room for" in line


def test_a_rollout_replaces_each_and_costs_no_request(swarm: Swarm) -> None:
    refused = swarm.make("rollout", "CANARY=10")
    assert refused.returncode == 0, "nothing to roll out yet"
    swarm.made("scale", "REPLICAS=2")
    swarm.made("publish", MAX_MEGAPIXELS="40")
    settings = {"CANARY": "20", "WATCH_SECONDS": "2", "MAX_P99_RATIO": "100"}
    key = {"authorization": f"Bearer {swarm.project.admin_key}"}
    at_each_node = [partial(swarm.connection, node) for node in range(2)]
    with swarm.asked() as load, asked_by_sessions(at_each_node, key, PHOTO) as sessions:
        told = swarm.made("rollout", MAX_MEGAPIXELS="40", **settings)
    assert "version 2 is live; 0 of " in told
    assert sessions.list_met("2") == list_chosen(f"{PIPELINE}_candidate", "2", 20)
    print(f"\n{sessions.count('2'):,} answers of the candidate to sessions")
    print(f"\n{told.splitlines()[-1]}; {load.answered:,} requests of {CLIENTS} clients")
    assert "version 2 live (rollout)" in swarm.made("history")
    assert "version 2 on 1 of its own, 20% of the requests" in told
    assert len(swarm.running()) == 2, "as many as before"
    assert "canary" not in swarm.made("status")
    for kind in ("secret", "config"):
        names = swarm.nodes[0].docker(kind, "ls", "--format", "{{.Name}}").split()
        assert len(names) == len({name.rpartition("-")[0] for name in names}), "no earlier ones"


def test_another_pipeline_is_rolled_out_taken_away_and_brought_back(swarm: Swarm) -> None:
    swarm.made("scale", "REPLICAS=1")
    swarm.made("publish", f"MODEL={OTHER}", DECODE="full")
    settings = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "100"}
    with swarm.asked():
        assert "version 2 is live; 0 of " in swarm.made("rollout", f"MODEL={OTHER}", **settings)
        assert "version 2 live" in swarm.made("history", f"MODEL={OTHER}")
        assert "unloaded from each" in swarm.made("unload", f"TRITON_MODEL={OTHER}")
        assert f"{OTHER} " not in swarm.made("models")
        # To ask for it loads it again.
        photo = swarm.project.path / "photo.jpg"
        assert swarm.made("classify", f"MODEL={OTHER}", f"IMG={photo}")
    swarm.made("scale", "REPLICAS=3")


def test_bench_shows_the_share_of_each_server(swarm: Swarm) -> None:
    # No node reaches a package index.
    swarm.project.made(".venv/layers/bench", ".venv/layers/perf_analyzer")
    told = swarm.made("bench", "QUICK=1")
    (shown,) = re.findall(r"report: (\S+)$", told, re.MULTILINE)
    folder = (swarm.project.path / shown).parent
    found = json.loads((folder / "results.json").read_text())["servers"]
    assert found.keys() == {"grpc", "http"}
    for counted in found.values():
        assert len(counted) == 3 and min(counted.values()) > 0
        assert all(f"{server} " in told for server in counted)
    assert 'id="servers"' in (folder / "report.html").read_text()
    print(f"\nrequests of make bench: {found}")


# Slow where a proof is asked: on the nodes, not where the version was made.
SLOW = """

def slow_on_nodes(scores):
    import time
    from pathlib import Path

    time.sleep(0.3 if Path("/run/proofs").exists() else 0)
    return scores
"""


def test_a_slow_version_ends_as_a_canary(swarm: Swarm) -> None:
    with changed(swarm, "slow_on_nodes", SLOW):
        swarm.made("publish")
    tasks = swarm.running()
    with swarm.asked():
        refused = swarm.make("rollout", "CANARY=30", WATCH_SECONDS="1")
    (error,) = error_lines(refused.stderr)
    # Or it lets clients wait so long that the live version answers them.
    why = re.search(r"p99 .* MAX_P99_RATIO=2 allows|\d+ of \d+ requests of clients failed", error)
    assert why, error
    assert f"rejected (rollout): {why[0][:9]}" in swarm.made("history")
    assert {*swarm.running()} == {*tasks}, "none of the others was replaced"
    assert "canary" not in swarm.made("status")


# What it answers where a proof is asked is wrong: on the nodes, not where the version was made.
BROKEN = """

def wrong_on_nodes(scores):
    from pathlib import Path

    return -scores if Path("/run/proofs").exists() else scores
"""


def test_a_version_that_one_node_answers_wrongly_is_taken_by_none(swarm: Swarm) -> None:
    with changed(swarm, "wrong_on_nodes", BROKEN):
        swarm.made("publish")
    tasks = swarm.running()
    with swarm.asked():
        refused = swarm.make("rollout", MAX_P99_RATIO="100")
    (error,) = error_lines(refused.stderr)
    assert "answers otherwise than where it was proved" in error
    assert re.search(r"version \d rejected \(rollout\): .*otherwise", swarm.made("history"))
    assert swarm.settled(3) >= 0
    assert {*tasks} & {*swarm.running()}, "the first that refused stopped it"
    assert swarm.ask(swarm.connection())


# Well for as long as a proof takes, and longer.
FAILING = """

answered = []

def fails_on_nodes(scores):
    from pathlib import Path

    answered.append(1)
    if len(answered) > 60 and Path("/run/proofs").exists():
        raise RuntimeError("no more of these")
    return scores
"""


def test_a_version_that_fails_later_is_taken_out_with_its_server(swarm: Swarm) -> None:
    with changed(swarm, "fails_on_nodes", FAILING):
        swarm.made("publish")
    tasks = {*swarm.running()}
    with swarm.clients() as load:
        refused = swarm.make("rollout", MAX_P99_RATIO="100")
    (error,) = error_lines(refused.stderr)
    assert re.search(r"requests( of clients)? failed|one of its servers ended", error)
    print(f"\n{error}\n{len(load.faults)} of {load.answered:,} requests failed")
    assert len(tasks - {*swarm.running()}) == 1, "the others were never touched"
    assert swarm.ask(swarm.connection())


def test_down_leaves_nothing(swarm: Swarm) -> None:
    assert "swarm server stopped" in swarm.made("swarm-down")
    manager = swarm.nodes[0]
    for kind in ("service", "secret", "config"):
        assert manager.docker(kind, "ls", "--quiet") == ""
    for node in swarm.nodes:
        # Another node's engine tidies up after the manager knows that nothing runs there.
        wait_until(partial(is_empty, swarm, node), f"{node.name} to be empty")


def is_empty(swarm: Swarm, node: Node) -> bool:
    networks = node.docker("network", "ls", "--format", "{{.Name}}")
    # Compose makes these for the steps, and `make clean` removes them.
    of_steps = {f"{swarm.name}_{volume}" for volume in ("state", "ports")}
    volumes = {*node.docker("volume", "ls", "--quiet").split()} - of_steps
    return not (node.docker("ps", "--all", "--quiet") or volumes or swarm.name in networks)
