"""How the door behaves under load, at its end, and when one of its processes dies."""

import http.client
import os
import queue
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from bundle_door.door import LEAVE_S
from bundle_serving import CHECK_HEADER, own_requests
from bundle_serving.process.keeper_notes import STATE, Notes
from bundle_serving.process.processes import children_of, family
from bundle_serving.protocol.kserve import pb, stub
from tests.door.servers import KEY, MODELS, Asked, Behind, behind_the_door
from tests.project import wait_until

RAW = {"Inference-Header-Content-Length": "0"}
INFER = "/v2/models/picture/infer"
LIVE = "/v2/health/live"
JPEG = b"\xff\xd8picture"
IN_FLIGHT = 4
LENGTHS = count(1)


@dataclass
class Gate:
    """Holds pictures in the model until it is opened."""

    path: Path

    def picture(self) -> bytes:
        """Each of another length: those of one length would share a batch, and none would wait."""
        return b"\xff\x00wait" + bytes(self.path) + bytes(next(LENGTHS))

    def open(self) -> None:
        self.path.touch()


OPTIONS = ["--max-in-flight", str(IN_FLIGHT)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """A server that takes few requests at once."""
    run_dir = tmp_path_factory.mktemp("small") / "run"
    with behind_the_door(run_dir, models=["picture"], options=OPTIONS) as started:
        yield started


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Behind]:
    """A server for one test alone, which ends it or a part of it."""
    with behind_the_door(tmp_path / "run", models=["picture"], options=OPTIONS) as started:
        yield started


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "open")
    yield made
    made.open()


def envoy(server: Behind) -> psutil.Process:
    (child,) = psutil.Process(server.door.pid).children()
    return child


def gauge(server: Asked, name: str) -> int:
    """One of the metrics, of all models together."""
    _, _, text = server.ask("GET", "/metrics", connection=server.connection(server.metrics_port))
    lines = [
        line for line in text.decode().splitlines() if line.startswith((f"{name}{{", f"{name} "))
    ]
    return int(sum(float(line.split()[-1]) for line in lines))


def pending(server: Asked) -> int:
    return gauge(server, "nv_inference_pending_request_count")


def full(server: Behind) -> bool:
    """Whether IN_FLIGHT requests have arrived: until then one that Triton never sees gets a 400."""
    status: int = server.ask("POST", INFER, b"no JSON")[0]
    return status == 503


def executed(server: Asked) -> int:
    return gauge(server, "nv_inference_count")


def asking(
    background: ThreadPoolExecutor, server: Behind, body: bytes
) -> Future[tuple[int, dict[str, str], bytes]]:
    return background.submit(server.ask, "POST", INFER, body, RAW)


def until_taken(server: Behind, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """The look whether the server is full takes a place itself, for a moment."""
    while (answer := server.ask("POST", INFER, body, RAW))[0] == 503:
        pass
    return answer


def test_beyond_the_limit_503_at_once(
    small: Behind, background: ThreadPoolExecutor, gate: Gate
) -> None:
    held = [background.submit(until_taken, small, gate.picture()) for _ in range(IN_FLIGHT)]
    wait_until(lambda: full(small), "all to arrive")
    status, headers, _ = small.ask("POST", INFER, JPEG, RAW)
    assert status == 503 and headers["retry-after"] == "1"
    assert small.ask("GET", "/v2/health/ready")[0] == 200
    gate.open()
    assert [answer.result()[0] for answer in held] == [200] * IN_FLIGHT
    assert small.ask("POST", INFER, JPEG, RAW)[0] == 200


def test_a_full_queue_refuses_at_once(
    tmp_path: Path, background: ThreadPoolExecutor, gate: Gate
) -> None:
    """As the pipelines have it: two to a batch here, and four may wait for one."""
    shutil.copytree(MODELS / "picture", tmp_path / "models" / "picture")
    config = tmp_path / "models" / "picture" / "config.pbtxt"
    bounded = "preferred_batch_size: [ 2 ] default_queue_policy { max_queue_size: 4 }"
    before, _, _ = config.read_text().partition("dynamic_batching")
    config.write_text(f"{before}dynamic_batching {{ {bounded} }}\n")
    asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[JPEG])
    asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
    with (
        behind_the_door(tmp_path / "run", tmp_path / "models", ["picture"]) as server,
        grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel,
    ):
        slow = [asking(background, server, gate.picture()) for _ in range(4)]
        quick = [asking(background, server, JPEG) for _ in range(12)]

        def refused_over_grpc() -> bool:
            """Triton takes a batch out of the queue before a process is free for it."""
            try:
                stub(channel).ModelInfer(asked, timeout=5)
            except grpc.RpcError as refusal:
                return bool(refusal.code() == grpc.StatusCode.UNAVAILABLE)
            return False

        wait_until(refused_over_grpc, "a full queue")
        # Triton may just have taken out a batch, and as many then find room; the next one does not.
        more = [asking(background, server, JPEG) for _ in range(4)]
        status, headers, body = next(as_completed(more)).result()
        assert status == 503 and headers["retry-after"] == "1" and b"queue size" in body
        gate.open()
        codes = [[answer.result()[0] for answer in answers] for answers in (slow, quick + more)]
        assert {code for each in codes for code in each} == {200, 503}
        batches = gauge(server, "nv_inference_exec_count")
        assert batches >= codes[0].count(200) + codes[1].count(200) / 2


def test_sigterm_lets_requests_finish(
    own: Behind, background: ThreadPoolExecutor, gate: Gate
) -> None:
    held = [background.submit(until_taken, own, gate.picture()) for _ in range(IN_FLIGHT)]
    wait_until(lambda: full(own), "all to arrive")
    own.door.send_signal(signal.SIGTERM)
    wait_until(lambda: own.ask("GET", "/v2/health/ready")[0] == 503, "not ready any more", 10)
    gate.open()
    assert [answer.result()[0] for answer in held] == [200] * IN_FLIGHT
    assert own.door.wait(30) == 0


def test_sigterm_answers_who_has_just_connected(
    own: Behind, background: ThreadPoolExecutor, gate: Gate
) -> None:
    """As through a balancer that has not heard yet that this server ends."""
    held = background.submit(until_taken, own, gate.picture())
    wait_until(lambda: gauge(own, "bundle_http_requests_in_flight"), "it to arrive")
    own.door.send_signal(signal.SIGTERM)
    wait_until(lambda: own.ask("GET", "/v2/health/ready")[0] == 503, "not ready any more", 10)
    time.sleep(LEAVE_S + 0.2)
    connection = http.client.HTTPConnection("localhost", own.http_port, timeout=60)
    connection.connect()
    gate.open()
    assert held.result()[0] == 200
    time.sleep(0.3)  # it takes its time, as over a long way
    connection.request("POST", INFER, JPEG, RAW)
    assert connection.getresponse().status == 200
    assert own.door.wait(30) == 0


class Conversation:
    """A stream: what is put in is sent, and read as it is answered."""

    def __init__(self, channel: grpc.Channel, **more: Any) -> None:
        self._asked: queue.Queue[Any] = queue.Queue()
        asked = iter(self._asked.get, None)
        self._answers = stub(channel).ModelStreamInfer(asked, timeout=600, **more)

    def ask(self, picture: bytes, **more: str) -> None:
        self._asked.put(message(picture, **more))

    def answer(self) -> str:
        answer = next(self._answers)
        assert not answer.error_message
        identity: str = answer.infer_response.id
        return identity

    def assert_ended(self) -> None:
        """For the client to open another one."""
        with pytest.raises(grpc.RpcError, match="is stopping; open the stream again") as ended:
            next(self._answers)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        self.hang_up()

    def hang_up(self) -> None:
        self._asked.put(None)


def message(picture: bytes, **more: str) -> pb.ModelInferRequest:
    asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[picture], **more)
    asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(picture)])
    return asked


def test_sigterm_ends_streams_between_their_messages(own: Behind, gate: Gate) -> None:
    """One that waits for an answer gets it first; one on which nothing happens ends at once, and
    one that begins now does not begin."""
    with grpc.insecure_channel(f"localhost:{own.grpc_port}") as channel:
        idle, busy = (Conversation(channel) for _ in range(2))
        for conversation in (idle, busy):
            conversation.ask(JPEG, id="first")
            assert conversation.answer() == "first"
        for number in "123":  # two are computed at once
            busy.ask(gate.picture(), id=number)
        wait_until(lambda: pending(own), "one to wait")
        own.door.send_signal(signal.SIGTERM)
        idle.assert_ended()
        late = Conversation(channel)
        late.ask(JPEG)
        late.assert_ended()
        gate.open()
        assert {busy.answer() for _ in "123"} == {*"123"}
        busy.assert_ended()
    assert own.door.wait(30) == 0


def test_sigterm_ends_streams_that_are_not_answered(own: Behind, gate: Gate) -> None:
    with grpc.insecure_channel(f"localhost:{own.grpc_port}") as channel:
        kept = Conversation(channel)
        for _ in range(3):
            kept.ask(gate.picture())
        wait_until(lambda: pending(own), "one to wait")
        own.door.send_signal(signal.SIGTERM)
        kept.assert_ended()
    assert own.door.wait(30) == 0


def test_without_envoy_the_door_ends(own: Behind) -> None:
    envoy(own).kill()
    assert own.door.wait(30) == 1


def test_without_the_http_service_envoy_ends(own: Behind) -> None:
    outside = envoy(own)
    own.door.kill()
    own.door.wait()
    wait_until(lambda: not outside.is_running(), "Envoy to end")


def test_ready_says_what_the_keeper_wrote(small: Behind) -> None:
    notes = Notes.resume(small.run_dir)
    notes.say(False, "pictures are not answered")
    status, _, body = small.ask("GET", "/v2/health/ready")
    assert status == 503 and b"pictures are not answered" in body
    notes.say(True)
    assert small.ask("GET", "/v2/health/ready")[0] == 200
    # Damaged, they say nothing: then Triton does.
    (small.run_dir / STATE).write_bytes(b"\xff{")
    assert small.ask("GET", "/v2/health/ready")[0] == small.ask("GET", LIVE)[0] == 200
    notes.say(True)
    assert small.ask("GET", "/v2/health/ready")[0] == 200


def test_without_triton_503(tmp_path: Path) -> None:
    """As soon as the request's time is over."""
    options = ["--answer-timeout-s", "2"]
    with behind_the_door(tmp_path / "run", models=["picture"], options=options) as server:
        kill_with_children(server.triton)
        status, headers, body = server.ask("POST", INFER, JPEG, RAW)
        assert status == 503 and headers["retry-after"] == "1" and b"try again" in body
        assert server.ask("GET", "/v2/health/live")[0] == 503
        # Who looks whether it is well is told so at once.
        ours = {**RAW, CHECK_HEADER: own_requests.id_of(KEY)}
        assert server.ask("POST", INFER, JPEG, ours)[0] == 503


def kill_with_children(triton: subprocess.Popen[bytes]) -> None:
    """Its models' processes would stay."""
    children = children_of(triton.pid)
    triton.kill()
    triton.wait()
    for each in children:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def test_what_is_not_answered_yet_waits_for_triton_to_be_started_again(
    own: Behind, background: ThreadPoolExecutor, gate: Gate
) -> None:
    """Over HTTP and gRPC: what is in Triton when it ends, and what comes while there is none."""
    body = gate.picture()
    asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[body])
    asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(body)])
    with grpc.insecure_channel(f"localhost:{own.grpc_port}") as channel:

        def both() -> tuple[Future[tuple[int, dict[str, str], bytes]], Future[Any]]:
            over_grpc = background.submit(stub(channel).ModelInfer, asked, timeout=60)
            return asking(background, own, body), over_grpc

        earlier = both()
        wait_until(lambda: gauge(own, "bundle_http_requests_in_flight") == 1, "it to arrive")
        kill_with_children(own.triton)
        later = both()
        gate.open()
        with own.triton_again():
            for over_http, over_grpc in (earlier, later):
                assert over_http.result()[0] == 200
                assert over_grpc.result().outputs


def test_a_dead_process_of_a_model_fails_nobody(own: Behind) -> None:
    """The other process answers what was sent to it."""
    victim = next(each.pid for each in family(own.triton.pid) if each.instance)
    os.kill(victim, signal.SIGKILL)
    for _ in range(4):
        assert own.ask("POST", INFER, JPEG, RAW)[0] == 200
    with grpc.insecure_channel(f"localhost:{own.grpc_port}") as channel:
        asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[JPEG])
        asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
        for _ in range(4):
            assert stub(channel).ModelInfer(asked, timeout=60).outputs


def test_a_client_that_hangs_up_is_not_computed_for(small: Behind, gate: Gate) -> None:
    """Two are computed, by two instances; those that wait behind them are given up."""
    before = executed(small)
    connections = []
    for _ in range(IN_FLIGHT):
        connection = http.client.HTTPConnection("localhost", small.http_port)
        connection.request("POST", INFER, gate.picture(), RAW)
        connections.append(connection)
    wait_until(lambda: pending(small), "one to wait")
    for connection in connections:
        assert connection.sock
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
    wait_until(lambda: gauge(small, "bundle_http_requests_in_flight") == 0, "the door to notice")
    # What Triton answers after it heard of that: it hears of all over one connection.
    assert small.ask("GET", "/v2/models/picture")[0] == 200
    gate.open()
    assert small.ask("POST", INFER, JPEG, RAW)[0] == 200
    assert executed(small) - before - 1 < IN_FLIGHT


def test_a_client_that_says_nothing_is_dropped(small: Behind) -> None:
    with socket.create_connection(("localhost", small.http_port), timeout=60) as silent:
        silent.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
        assert silent.recv(1000).startswith(b"HTTP/1.1 408")
        assert not silent.recv(1000)
