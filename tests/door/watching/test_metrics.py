"""/metrics of a real server: what was asked is in it, and Prometheus' own parsers read it."""

import re
import shutil
import subprocess

import grpc
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from bundle_serving import CHECK_HEADER, own_requests
from bundle_serving.protocol.kserve import pb
from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked
from tests.door.test_exposure import over_grpc
from tests.door.test_life import INFER, JPEG, RAW
from tests.project import wait_until

pytestmark = on_a_gpu_too

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def metrics(server: Asked, headers: dict[str, str] | None = None) -> tuple[str, str]:
    connection = server.connection(server.metrics_port)
    status, received, body = server.ask("GET", "/metrics", None, headers, connection)
    assert status == 200, body
    return received["content-type"], body.decode()


def names(text: str) -> set[str]:
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def value(server: Asked, name: str, **labels: str) -> float:
    for family in prometheus(metrics(server)[1]):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return 0.0


def test_requests_are_counted_by_outcome(server: Asked) -> None:
    count = "bundle_request_duration_seconds_count"

    def counted() -> tuple[float, float, float]:
        return (
            value(server, count, protocol="http", outcome="ok"),
            value(server, count, protocol="http", outcome="refused"),
            value(server, "bundle_refused_total", protocol="http", reason="bad_request"),
        )

    def are_counted(more: int) -> bool:
        return counted() == tuple(each + more for each in before)

    before = counted()
    assert server.ask("POST", INFER, JPEG, RAW)[0] == 200
    assert server.ask("POST", INFER, b"text", RAW)[0] == 400
    # No answer waits until the door knows what its model is called in metrics.
    wait_until(lambda: are_counted(1), "both to be counted")
    # A header hides nobody's.
    assert server.ask("POST", INFER, JPEG, {**RAW, CHECK_HEADER: "1"})[0] == 200
    assert server.ask("POST", INFER, b"text", {**RAW, CHECK_HEADER: server.admin_key})[0] == 400
    wait_until(lambda: are_counted(2), "these to be counted")
    # Ours are left out.
    own = {CHECK_HEADER: own_requests.id_of(server.admin_key)}
    assert server.ask("POST", INFER, JPEG, {**RAW, **own})[0] == 200
    assert server.ask("POST", INFER, b"text", {**RAW, **own})[0] == 400
    assert are_counted(2)
    # A name that a client invents is not one in the metrics.
    assert server.ask("POST", "/v2/models/invented/infer", JPEG, RAW)[0] == 404
    assert "invented" not in metrics(server)[1]


def test_requests_over_grpc(server: Asked) -> None:
    count = "bundle_request_duration_seconds_count"

    def counted() -> tuple[float, float, float]:
        return (
            value(server, count, pipeline="other", protocol="grpc", outcome="ok"),
            value(server, count, pipeline="other", protocol="grpc", outcome="refused"),
            value(server, "bundle_refused_total", protocol="grpc", reason="not_found"),
        )

    before = counted()
    request = pb.ModelInferRequest(model_name="picture", raw_input_contents=[JPEG])
    request.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
    with over_grpc(server) as triton:
        triton.ModelInfer(request)
        request.model_name = "invented"
        with pytest.raises(grpc.RpcError):
            triton.ModelInfer(request)

    def are_counted() -> bool:
        # And maybe of earlier tests: Envoy's log comes half a second later.
        return all(now > then for now, then in zip(counted(), before, strict=True))

    wait_until(are_counted, "Envoy's log of both")
    assert "invented" not in metrics(server)[1]


def test_both_formats(server: Asked) -> None:
    server.ask("POST", INFER, JPEG, RAW)
    kind, plain = metrics(server)
    assert kind.startswith("text/plain; version=0.0.4")
    assert list(prometheus(plain))
    kind, open_text = metrics(server, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert list(openmetrics(open_text))
    assert names(plain) == names(open_text)
    assert value(server, "bundle_process_resident_memory_bytes", process="envoy") > 10e6
    assert value(server, "bundle_process_cpu_seconds_total", process="envoy") > 0


def test_what_promtool_says(server: Asked) -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("no promtool here")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=metrics(server)[1], capture_output=True, text=True
    )
    # Triton calls its own as it likes.
    assert [line for line in checked.stderr.splitlines() if not line.startswith("nv_")] == []
