"""The relay before doors that follow each other, as containers have it."""

import contextlib
import http.client
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmark.torture import unfinished
from bundle_door.access import certificate
from bundle_serving.process import relayed
from bundle_serving.process.exposure import CERTIFICATE
from tests.door.servers import Behind, behind_the_door
from tests.door.test_clients import request_of
from tests.door.test_memory import LARGE, answered_from, subject_of
from tests.project import ROOT, free_ports, wait_until

PROGRAM = """
import sys
from bundle_door import relay
relay.PORTS.update(zip(relay.PORTS, map(int, sys.argv[3:])))
sys.exit(relay.main(["--folder", sys.argv[1], "--run-dir", sys.argv[2]]))
"""
END = b"\r\n\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ports")


@pytest.fixture(scope="module")
def door(shared: Path) -> Iterator[Behind]:
    with behind_the_door(shared / "run", options=["--relay-folder", str(shared)]) as started:
        yield started


@contextlib.contextmanager
def relaying(
    shared: Path, run_dir: Path, ports: Sequence[int] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ports = ports or free_ports(3)
    command = [sys.executable, "-c", PROGRAM, str(shared), str(run_dir), *map(str, ports)]
    relay = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_until(lambda: is_open(ports[-1]), "the relay")
        yield relay, ports[0]
    finally:
        relay.kill()
        relay.wait()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def another_server(shared: Path) -> Iterator[list[bytes]]:
    """What it is told at first of each connection."""
    told: list[bytes] = []
    (shared / "other").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared / "other" / relayed.HTTP))
        listener.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        said = b""
                        while END not in said[len(SIGNATURE) :]:
                            if not (more := connection.recv(65536)):
                                break  # who only looks whether somebody listens
                            said += more
                        else:
                            told.append(said)
                            connection.sendall(ANSWER)

        threading.Thread(target=answer, daemon=True).start()
        yield told


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def ask(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/v2/health/live")
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read()


def test_one_server_follows_the_other(door: Behind, shared: Path, tmp_path: Path) -> None:
    """New connections are the one's that serves; what is open stays where it is."""
    wait_until((shared / relayed.SERVING).is_symlink, "the door to take the ports that nobody has")
    with relaying(shared, tmp_path) as (_, port), another_server(shared) as told:
        first = connect(port)
        assert ask(first) == b""
        (shared / relayed.SERVING).unlink()
        (shared / relayed.SERVING).symlink_to("other")
        assert relayed.is_held(shared)
        second = connect(port)
        second.connect()
        (from_address, from_port) = second.sock.getsockname()
        assert (ask(second), ask(first)) == (b"other", b"")
        (said,) = told
        assert said.startswith(SIGNATURE)
        assert said[16:20] == socket.inet_aton(from_address)
        assert struct.unpack("!H", said[24:26]) == (from_port,)

        subprocess.run([sys.executable, "-m", "bundle_serving.process.relayed", shared], check=True)
        assert ask(connect(port)) == b""


def test_a_relay_that_is_stopped_waits_for_its_connections(
    door: Behind, shared: Path, tmp_path: Path
) -> None:
    with relaying(shared, tmp_path) as (relay, port):
        open_one = connect(port)
        ask(open_one)
        relay.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            relay.wait(1)
        assert ask(open_one) == b""
        open_one.close()
        assert relay.wait(30) == 0


def test_tls_is_the_servers(tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    options = ["--tls-cert", "own", "--tls-folder", str(tmp_path)]
    options += ["--relay-folder", str(tmp_path)]
    tls = tmp_path / CERTIFICATE
    with (
        behind_the_door(tmp_path / "run", models=["picture"], options=options, tls=tls) as door,
        relaying(tmp_path, tmp_path) as (_, port),
    ):
        status, _, _ = door.ask("GET", "/v2/health/live", connection=door.connection(port))
        assert status == 200


def test_each_address_behind_it_has_its_share(door: Behind, shared: Path, tmp_path: Path) -> None:
    wait_until((shared / relayed.SERVING).is_symlink, "the door to take the ports that nobody has")
    ports = free_ports(3)
    with relaying(shared, tmp_path, ports):
        behind = replace(door, http_port=ports[0], grpc_port=ports[1])
        with unfinished.messages(subject_of(behind), 9, LARGE, 1) as kept:
            wait_until(lambda: any(call.done() for call in kept), "one to be refused")
            assert answered_from("127.0.0.2", behind, request_of(b"\xff\xd8" + bytes(30_000_000)))


def test_nobody_answers_where_no_server_is(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    closed = pytest.raises((http.client.RemoteDisconnected, ConnectionError))
    with relaying(tmp_path / "empty", tmp_path) as (_, port), closed:
        ask(connect(port))


def test_connections_wait_for_a_server_that_is_started_again(tmp_path: Path) -> None:
    with relaying(tmp_path, tmp_path) as (_, port), ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(ask, connect(port)) for _ in range(4)]
        wait_until(lambda: count_waiting(port) >= len(asked), "their connections")
        with another_server(tmp_path):
            (tmp_path / relayed.SERVING).symlink_to("other")
            assert [each.result() for each in asked] == [b"other"] * 4


def count_waiting(port: int) -> int:
    return sum(
        [*each.laddr][1:] == [port] and each.status == psutil.CONN_ESTABLISHED
        for each in psutil.net_connections("tcp4")
    )
