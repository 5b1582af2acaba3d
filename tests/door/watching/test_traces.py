"""One trace of one request: the caller's span, the door's below it, each step's below that; taken
by a real OTLP receiver, from a real door and a real Triton."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from bundle_client import Client
from bundle_client.server import Protocol
from bundle_serving.process import sockets, traces
from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from tests.door.servers import Behind, behind_the_door
from tests.door.test_life import INFER, JPEG, RAW
from tests.project import free_ports, wait_until

CALLER = "00f067aa0ba902b7"


class Receiver:
    """Takes spans as a collector does, over HTTP."""

    def __init__(self) -> None:
        spans: list[Span] = []

        class Taking(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                for resource in ExportTraceServiceRequest.FromString(body(self)).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.spans = spans
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def of(self, trace: str) -> list[Span]:
        return [span for span in self.spans if span.trace_id.hex() == trace]

    def count(self, trace: str, name: str) -> int:
        return sum(span.name == name for span in self.of(trace))

    def named(self, trace: str, name: str) -> Span:
        """The only one of that name, once it is here."""
        wait_until(lambda: self.count(trace, name), f"the span {name}", seconds=60)
        (found,) = [span for span in self.of(trace) if span.name == name]
        return found

    def above(self, span: Span) -> Span:
        def found() -> list[Span]:
            return [each for each in self.spans if each.span_id == span.parent_span_id]

        wait_until(found, f"the parent of {span.name}", seconds=60)
        return found()[0]


def body(request: BaseHTTPRequestHandler) -> bytes:
    if length := request.headers["Content-Length"]:
        return request.rfile.read(int(length))
    chunks = []
    while size := int(request.rfile.readline(), 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.daemon_threads = True
        made.server.block_on_close = False
        made.server.shutdown()
        made.server.server_close()
        thread.join()


@contextmanager
def traced(folder: Path, endpoint: str, ratio: str) -> Iterator[Behind]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(traces.ENDPOINT, endpoint)
        patch.setenv(traces.RATIO, ratio)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        patch.setenv(sockets.STEPS_VARIABLE, str(sockets.folder(folder) / sockets.STEPS))
        own = traces.triton_options()
        with behind_the_door(folder, models=["chain", "picture"], own=own) as server:
            yield server


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Behind, Receiver]]:
    with ExitStack() as stack:
        made = stack.enter_context(receiver())
        folder = tmp_path_factory.mktemp("traced")
        yield stack.enter_context(traced(folder, made.endpoint, "0.000001")), made


def parent(trace: str, flags: str = "01") -> str:
    return f"00-{trace}-{CALLER}-{flags}"


def asked(server: Behind, protocol: Protocol, traceparent: str = "") -> None:
    with pytest.MonkeyPatch.context() as patch:
        if traceparent:  # as a program that knows nothing of OpenTelemetry
            patch.setenv("TRACEPARENT", traceparent)
            patch.delitem(sys.modules, "opentelemetry")
        port = server.grpc_port if protocol == "grpc" else server.http_port
        with Client(f"localhost:{port}", protocol=protocol, model="chain") as client:
            client.classify(JPEG)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_one_trace(taken: tuple[Behind, Receiver], protocol: Protocol) -> None:
    """Of every request, from the caller's span down to the step in the ensemble."""
    server, received = taken
    base = int(protocol.encode().hex(), 16) << 64
    asked_for = [f"{base + number:032x}" for number in range(50)]
    for trace in asked_for:
        asked(server, protocol, parent(trace))
    for trace in asked_for:
        step = received.named(trace, "picture")
        door = received.above(step)
        assert (door.name, door.parent_span_id.hex()) == ("ingress", CALLER)
        assert door.start_time_unix_nano <= step.start_time_unix_nano
        assert step.end_time_unix_nano <= door.end_time_unix_nano
        rows = [each.value.int_value for each in step.attributes if each.key == "rows"]
        assert rows == [1]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_below_the_callers_own_span(taken: tuple[Behind, Receiver], protocol: Protocol) -> None:
    """Of a program that uses OpenTelemetry: its span, the door's, the step's, one in the other."""
    server, received = taken
    provider = TracerProvider()
    exporter = OTLPSpanExporter(f"{received.endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span("my program") as own:
        asked(server, protocol)
    trace = f"{own.get_span_context().trace_id:032x}"
    line = [received.named(trace, "picture")]
    line += [received.above(line[0])]
    line += [received.above(line[1])]
    assert [each.name for each in line] == ["picture", "ingress", "my program"]
    for inner, outer in pairwise(line):
        assert outer.start_time_unix_nano <= inner.start_time_unix_nano
        assert inner.end_time_unix_nano <= outer.end_time_unix_nano


def test_not_traced_where_the_caller_wants_none(taken: tuple[Behind, Receiver]) -> None:
    server, received = taken
    unwanted, wanted = f"{100:032x}", f"{101:032x}"
    protocols: tuple[Protocol, ...] = ("http", "grpc")
    for protocol in protocols:
        asked(server, protocol, parent(unwanted, "00"))
    for protocol in protocols:
        asked(server, protocol, parent(wanted))
    wait_until(lambda: received.count(wanted, "picture") == 2, "the steps'", seconds=60)
    wait_until(lambda: received.count(wanted, "ingress") >= 2, "the door's", seconds=60)
    assert not received.of(unwanted)


def test_ids_stay_as_the_client_gave_them(taken: tuple[Behind, Receiver]) -> None:
    server, received = taken
    trace, given = f"{200:032x}", "6f1c0d2e-5a7b-4c3d-8e9f-0a1b2c3d4e5f"
    for request_id in (given, "first"):
        headers = {**RAW, "traceparent": parent(trace), "x-request-id": request_id}
        status, answered, _ = server.ask("POST", INFER, JPEG, headers)
        assert status == 200 and answered["x-request-id"] == request_id
    wait_until(lambda: received.count(trace, "picture") == 2, "the steps'", seconds=60)


def test_a_share_of_all_others(tmp_path: Path) -> None:
    with receiver() as made, traced(tmp_path, made.endpoint, "1") as server:
        assert server.ask("POST", INFER, JPEG, RAW)[0] == 200
        both = {"ingress", "picture"}
        wait_until(lambda: both <= {each.name for each in made.spans}, "both", seconds=60)


def test_served_without_the_collector(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with traced(tmp_path, f"http://127.0.0.1:{port}", "1") as server:
        for _ in range(20):
            assert server.ask("POST", INFER, JPEG, RAW)[0] == 200


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://:x"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(UserError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT=.* must be http://host:port"):
        Settings.load({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
