"""The words are those of tritonclient 2.73 against Triton 2.51."""

import sys
from http.client import IncompleteRead
from ssl import SSLError
from types import ModuleType

import pytest
from tritonclient.utils import InferenceServerException

from bundle_client import (
    ClientError,
    KeyRefused,
    ModelUnavailable,
    PictureRefused,
    ServerBusy,
    ServerFault,
    ServerUnreachable,
)
from bundle_client.transport.faults import fault, refusals
from bundle_client.transport.plain_http import HttpError

URL = "localhost:8000"
TO_CONNECT = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
IN_ENSEMBLE = "in ensemble 'ensemble_python_resnet50', "


@pytest.mark.parametrize("invalid", ["400", "StatusCode.INVALID_ARGUMENT"])
def test_a_refused_picture_comes_with_the_models_own_words(invalid: str) -> None:
    refusal = InferenceServerException(IN_ENSEMBLE + "cut off; send it whole", invalid)
    error = fault(refusal, URL, 1)
    assert isinstance(error, PictureRefused)
    assert (error.cause, error.remedy) == ("cut off", "send it whole")


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        ("400", "no remedy given", PictureRefused),
        ("400", "this port speaks TLS; use https://", ServerUnreachable),
        ("StatusCode.INVALID_ARGUMENT", "this port speaks TLS; use grpcs://", ServerUnreachable),
        ("413", "", PictureRefused),
        ("400", "unexpected inference output 'OUTPUT' for model 'p'", ModelUnavailable),
        (
            "StatusCode.INVALID_ARGUMENT",
            "[request id: <id_unknown>] inference input 'INPUT' data-type is 'UINT8', but model",
            ModelUnavailable,
        ),
        ("404", "Request for unknown model: 'm' is not found", ModelUnavailable),
        ("StatusCode.NOT_FOUND", "Request for unknown model: 'm'", ModelUnavailable),
        ("400", "the request is malformed, or its path has an escaped slash", ModelUnavailable),
        ("503", "Request for unknown model: 'm' has no available versions", ModelUnavailable),
        ("StatusCode.UNAVAILABLE", "Request for unknown model: 'm' has no", ModelUnavailable),
        ("401", "no valid API key; send the header", KeyRefused),
        ("StatusCode.UNAUTHENTICATED", "", KeyRefused),
        ("503", "the server is busy: 9 requests are in flight; try again", ServerBusy),
        ("429", "ann may ask 2 times a second; wait", ServerBusy),
        ("StatusCode.UNAVAILABLE", "Exceeds maximum queue size", ServerBusy),
        ("StatusCode.RESOURCE_EXHAUSTED", "Payload Too Large", PictureRefused),
        ("404", "", ServerFault),
        ("502", "", ServerFault),
        ("500", "Stub process 'preprocessing_0_0' is not healthy.", ServerFault),
        ("StatusCode.INTERNAL", "boom", ServerFault),
        ("StatusCode.UNAVAILABLE", "Stream removed (Socket closed)", ServerFault),
        ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", ServerFault),
        (
            "StatusCode.UNAVAILABLE",
            TO_CONNECT + "Failed to connect to remote host: Connection refused",
            ServerUnreachable,
        ),
        ("StatusCode.UNAVAILABLE", TO_CONNECT + "Socket closed", ServerUnreachable),
        (
            "StatusCode.UNIMPLEMENTED",
            "Received http2 header with status: 404",
            ServerUnreachable,
        ),
        (
            "StatusCode.UNAVAILABLE",
            "errors resolving nowhere:1: [field:hostname lookup error:address lookup failed for "
            "nowhere:1: Domain name not found]",
            ServerUnreachable,
        ),
    ],
)
def test_statuses(status: str, message: str, kind: type[ClientError]) -> None:
    error = fault(InferenceServerException(message, status), URL, 1)
    assert type(error) is kind
    assert error.cause
    assert error.remedy and "file" not in error.remedy  # which a text is not


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ConnectionRefusedError(111, "Connection refused"), ServerUnreachable),
        (OSError(113, "No route to host"), ServerUnreachable),
        (TimeoutError("timed out"), ServerFault),
        (ConnectionResetError(104, "Connection reset by peer"), ServerFault),
        (IncompleteRead(b"half", 4), ServerFault),
        (SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), ServerUnreachable),
        (ValueError("Parse error at offset 0"), ServerUnreachable),
    ],
)
def test_exceptions_of_the_connection(raised: Exception, kind: type[ClientError]) -> None:
    assert type(fault(raised, URL, 1)) is kind


def test_what_another_thread_is_importing_raises_nothing_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first refusal over HTTP, while another client begins over gRPC."""
    assert InferenceServerException in refusals()
    monkeypatch.setitem(sys.modules, "tritonclient.utils", ModuleType("tritonclient.utils"))
    assert refusals() == (HttpError,)


def test_a_mistake_in_the_program_stays_what_it_is() -> None:
    assert fault(TypeError("unexpected argument"), URL, 1) is None


def test_a_traceback_is_cut_to_its_first_line() -> None:
    message = (
        "Failed to process the request(s), message: KeyError: 'x'\n\nAt:\n  model.py(3): execute"
    )
    error = fault(InferenceServerException(message, "500"), URL, 1)
    assert "\n" not in str(error)
    assert "KeyError: 'x'" in str(error)


def test_the_address_is_in_what_concerns_the_server() -> None:
    assert URL in str(fault(ConnectionRefusedError(111, "Connection refused"), URL, 1))
    assert URL in str(fault(InferenceServerException("unknown model", "404"), URL, 1))


def test_a_time_out_says_how_long_it_was() -> None:
    assert "within 2.5 s" in str(fault(TimeoutError("timed out"), URL, 2.5))


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("certificate verify failed: self-signed certificate", "is not trusted"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'x'", "name"),
        ("certificate verify failed: IP address mismatch, certificate is not valid for", "name"),
    ],
)
def test_a_certificate_that_does_not_do(why: str, cause: str) -> None:
    error = fault(SSLError(1, f"[SSL: CERTIFICATE_VERIFY_FAILED] {why}"), URL, 1)
    assert isinstance(error, ServerUnreachable) and cause in error.cause


def test_a_certificate_of_another_name_over_grpc() -> None:
    why = "Custom verification check failed with error: UNAUTHENTICATED: Hostname Verification"
    refusal = InferenceServerException(f"{TO_CONNECT}{why} Check failed.", "StatusCode.UNAVAILABLE")
    error = fault(refusal, URL, 1)
    assert error and error.cause == f"{URL}: its certificate has another name"
