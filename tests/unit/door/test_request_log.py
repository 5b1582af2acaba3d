"""The door's line for each request: its form, and what never gets into it."""

import asyncio
import json
import re
from dataclasses import replace

import msgspec
import pytest

from bundle_door.front import envoy_process
from bundle_door.front.envoy_process import Line
from bundle_door.requests import Note, note_of, sane_id, trace_id
from bundle_door.settings import JSON, TEXT
from bundle_door.watching.request_log import RequestLog
from bundle_serving import own_requests
from bundle_serving.process.server_log import log, log_traceback, stamp

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOTE = Note(
    "mine", TRACE, "ann", "birds", "3", 1000, 0.5, 2.25, {"preprocessing": 10.5, "network": 20.0}
)
OF_ENVOY = {
    "port": "grpc", "began": "1795388464.017", "us": 30_040, "ended_ms": 30, "status": 200,
    "bytes_in": 10, "bytes_out": 20, "id": "mine", "client": None, "method": "POST",
    "path": "/inference.GRPCInferenceService/ModelInfer", "model": "birds", "version": "",
    "grpc_status": "OK",
    "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "details": "via_upstream",
}  # fmt: skip


def lines(form: str, path: str = "/classify", note: Note = NOTE) -> list[str]:
    found: list[bytes] = []
    log = RequestLog(form, found.append)
    log.log_answer("POST", path, note, 200, 33_250_000, 200)
    return [line.decode() for line in found]


def of_envoy(**changes: object) -> list[str]:
    found: list[bytes] = []
    line = msgspec.convert({**OF_ENVOY, **changes}, Line)
    RequestLog(TEXT, found.append).of_envoy(line)
    return [line.decode() for line in found]


def test_a_line_of_text() -> None:
    (line,) = lines(TEXT)
    time, _, rest = line.partition(" door: ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == (
        "id=mine client=ann protocol=http method=POST path=/classify pipeline=birds version=3"
        " status=200 ms=33.2 received_ms=0.5 waited_ms=2.25 preprocessing_ms=10.5 network_ms=20.0"
        f" bytes_in=1000 bytes_out=200 trace={TRACE}\n"
    )


def test_the_same_as_json() -> None:
    found = json.loads(*lines(JSON))
    assert found["source"] == "door" and found["steps"] == NOTE.steps
    assert (found["id"], found["client"], found["status"]) == ("mine", "ann", 200)


def test_no_path_forges_a_field_or_a_line() -> None:
    (line,) = lines(TEXT, '/x status=200 "\n2026')
    assert line.count("\n") == 1 and ' path="/x status=200 \\"\\n2026" ' in line
    assert len(lines(TEXT, "/" + 9999 * "x")[0]) < 600


@pytest.mark.parametrize("form", [TEXT, JSON])
@pytest.mark.parametrize("odd", ["\x1b[2J", "\x9b2J", "\x7f", "\u202e", "\u2066", "\U000e0001"])
def test_nothing_that_a_terminal_obeys_is_in_the_log(form: str, odd: str) -> None:
    (line,) = lines(form, f"/a{odd}b")
    assert line.rstrip("\n").isprintable()
    if form == JSON:
        assert json.loads(line)["path"] == f"/a{odd}b"


def test_what_is_said_of_a_fault_is_printable(capfd: pytest.CaptureFixture[str]) -> None:
    log("keeper", "a model\n\x9b2J\u202e")
    log_traceback(ValueError("\x1b[2Jsent\u202e"))
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 2 and all(line.isprintable() for line in told)
    assert told[0].endswith("keeper: a model\\u000a\\u009b2J\\u202e")


@pytest.mark.parametrize("path", ["/v2/health/ready", "/page/live.json", "/internal/metrics"])
def test_what_is_asked_all_the_time_has_no_line(path: str) -> None:
    assert lines(TEXT, path) == []
    assert lines(TEXT, note=replace(NOTE, is_own=True)) == []


def test_only_who_has_the_admin_key_hides_requests() -> None:
    own_id = own_requests.id_of("the-admin-key-of-a-test")
    for sent, is_own in (
        (own_id, True),
        ("1", False),
        ("", False),
        ("é", False),
        (own_id[1:], False),
    ):
        assert note_of({"bundle-check": sent}, keys=False, own_id=own_id).is_own == is_own
    for sent in ("", "1"):
        assert not note_of({"bundle-check": sent}, keys=False).is_own


def test_grpc_has_a_line_of_the_same_form() -> None:
    (line,) = of_envoy()
    assert line == (
        f"{stamp(1795388464.047)} door: id=mine protocol=grpc method=POST"
        " path=/inference.GRPCInferenceService/ModelInfer pipeline=birds status=OK ms=30.0"
        f" bytes_in=10 bytes_out=20 trace={TRACE}\n"
    )


def test_what_envoy_refuses() -> None:
    (line,) = of_envoy(port="http", status=401, grpc_status=None, details="ext_authz_denied")
    assert "protocol=http" in line and "status=401" in line and "refused=ext_authz_denied" in line
    assert of_envoy(path="/grpc.health.v1.Health/Check") == []


def test_only_sane_ids_are_taken() -> None:
    assert sane_id("a-1_b:c.d/e=") == "a-1_b:c.d/e="
    for odd in ("", "a b", 'a"', "ü", "x" * 129, "a\n"):
        assert re.fullmatch(r"[0-9a-f-]{36}", sane_id(odd))
    assert " id=" not in of_envoy(id='x" status=200')[0]


def test_only_valid_traces_are_taken() -> None:
    assert trace_id(f"00-{TRACE}-00f067aa0ba902b7-01") == TRACE
    for odd in ("", TRACE, f"00-{TRACE}-00f067aa0ba902b7", f"00-{'0' * 32}-00f067aa0ba902b7-01"):
        assert trace_id(odd) == ""


def test_who_asks_is_known_by_the_key_alone() -> None:
    headers = {"x-client": "ann", "x-request-id": "1"}
    assert note_of(headers, keys=True).client == "ann"
    assert note_of(headers, keys=False).client == ""


@pytest.mark.parametrize("id", ["a b", "ü", r"\\200", r"\200", r"\"\37777777600\\", "\x80"])
def test_no_request_hides_by_an_odd_header(id: str) -> None:
    """As Envoy writes it: bytes that are no UTF-8 as octal numbers."""
    told = (
        f'{{"port":"grpc","began":"1.5","ended_ms":1,"status":200,"bytes_in":1,"bytes_out":1,'
        f'"id":"{id}","client":"ann","model":"m\\\\7"}}\n'
    )
    found: list[Line] = []

    async def read_one() -> None:
        envoy = asyncio.StreamReader()
        envoy.feed_data(told.encode("latin-1"))
        envoy.feed_eof()
        await envoy_process.read_lines(envoy, [found.append])

    asyncio.run(read_one())
    assert [(each.client, each.model) for each in found] == [("ann", "m\\7")]
