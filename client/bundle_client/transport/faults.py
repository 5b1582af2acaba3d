"""From the exceptions of the four connections to the errors of this package; and how a server that
is busy, or gone, is asked again: a few times, later each time, and not by all at once."""

import errno
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..errors import (
    ClientError,
    KeyRefused,
    ModelUnavailable,
    PictureRefused,
    ServerBusy,
    ServerFault,
    ServerUnreachable,
)
from .plain_http import HttpError

T = TypeVar("T")

START_IT = "start the server (`make up`) or give the address of a running one"
SEE_LOGS = "look at the server's log (`make logs`)"
CHECK_PORT = "check port and protocol: 8000 is http, 8001 is grpc"
SEE_MODELS = "see what is loaded (`make status`) or name another model"

# After the first time; all waiting together takes 5 to 15 s.
MOST_AGAIN = 4
FIRST_S = 0.67
UNSEEDED = random.SystemRandom()  # or programs with one seed would all ask again at once
LONGEST_PAUSE_S = 30
REFUSED = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT}

# Of OpenSSL and of gRPC's BoringSSL.
OTHER_NAME = re.compile(
    r"mismatch, certificate is not valid for|Hostname Verification Check failed"
    r"|[Pp]eer name .* is not in peer certificate"
)
NOT_TRUSTED = re.compile(rf"CERTIFICATE_VERIFY_FAILED|{OTHER_NAME.pattern}")

# Triton puts these in front of what a model says.
PREFIX = re.compile(r"^(\[request id: [^]]*\] )?(in ensemble '[^']*', )?")
# Triton checks a request against the model's signature before any model sees it, and answers
# INVALID_ARG as it does for a bad picture.
SIGNATURE = re.compile(
    r"unexpected inference (in|out)put|inference input '[^']*' data-type"
    r"|expected \d+ inputs but got|unexpected shape for input"
)
# The same of a frame that is sent as if it were a picture.
NO_SEQUENCE = "must specify a non-zero or non-empty correlation ID"
# What the door says of a model's name with a slash in it (bundle_door/front/config).
ESCAPED_SLASH = "escaped slash"
# What OpenSSL says of a server without TLS.
NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|record layer failure")
# What the door, with a 400, says to who speaks none (bundle_door/front/config/listeners.yaml).
OF_TLS = "this port speaks TLS"
# What gRPC says of a server for HTTP.
NO_GRPC = "Received http2 header with status"
HUNG_UP = re.compile(
    r"socket closed|connection (reset|closed)|broken pipe|goaway|disconnected|not completed"
    r"|IncompleteRead",
    re.IGNORECASE,
)


@contextmanager
def translate_faults(url: str, timeout: float) -> Iterator[None]:
    """Turn what a connection raises into a `ClientError`."""
    try:
        yield
    except Exception as exc:
        error = fault(exc, url, timeout)
        if error is None:
            raise
        raise error from exc


def refusals() -> tuple[type[Exception], ...]:
    """What is raised where the server answers with an error, such as an unknown model. tritonclient
    raises nothing unless it was imported, which takes 0.2 s; another thread may be at it."""
    of_tritonclient = sys.modules.get("tritonclient.utils")
    refusal = getattr(of_tritonclient, "InferenceServerException", None)
    return (HttpError, refusal) if refusal else (HttpError,)


def fault(exc: Exception, url: str, timeout: float) -> ClientError | None:
    """The `ClientError` for an exception of a connection's; None for a mistake in a program."""
    from http.client import HTTPException

    if isinstance(exc, refusals()):
        return from_status(exc, url, timeout)
    if NOT_TRUSTED.search(str(exc)):
        return not_trusted(url, str(exc))
    if isinstance(exc, TimeoutError):
        return no_answer(timeout)
    if NO_TLS.search(str(exc)):
        return not_triton(url, "HTTPS")
    if isinstance(exc, OSError):
        return unreachable(url, exc) if exc.errno in REFUSED else hung_up()
    # ValueErrors come from what should be JSON.
    of_http = isinstance(exc, (HTTPException, ValueError))
    if of_http or type(exc).__module__.startswith("aiohttp"):
        return hung_up() if HUNG_UP.search(str(exc)) else not_triton(url, "HTTP")
    return None


def from_status(exc: Any, url: str, timeout: float) -> ClientError:
    """Sort an `HttpError` or `InferenceServerException` by its HTTP or gRPC status."""
    status = str(exc.status()).removeprefix("StatusCode.")
    # A python model's unforeseen exception comes with its whole traceback.
    lines = str(exc.message()).strip().splitlines() or [""]
    message = PREFIX.sub("", lines[0])
    if status == "UNAVAILABLE" and message.startswith(("failed to connect", "errors resolving")):
        if NOT_TRUSTED.search(message):
            return not_trusted(url, message)
        if "remote host: " in message or "lookup" in message:
            reason = message.rpartition(": ")[2].rstrip("]").lower()
            return ServerUnreachable(f"{url}: {reason}", START_IT)
        return not_triton(url, "gRPC")
    if message.startswith(NO_GRPC) or status == "UNIMPLEMENTED":
        return not_triton(url, "gRPC")
    if status == "UNAVAILABLE" and HUNG_UP.search(message):
        return hung_up()
    if status == "DEADLINE_EXCEEDED":
        return no_answer(timeout)
    if status in ("401", "UNAUTHENTICATED"):
        return KeyRefused(
            f"{url}: no valid API key",
            "set BUNDLE_API_KEY, or in Python api_key, to one from its operator (`make keys`)",
        )
    if status in ("413", "RESOURCE_EXHAUSTED"):
        return PictureRefused("larger than the server takes", "send less at once")
    if not message:  # which Triton's errors have
        return ServerFault(
            f"{url} answers HTTP {status}, but not as Triton does",
            "check the address: something else may be listening there",
        )
    if status in ("404", "NOT_FOUND") or "unknown model" in message or ESCAPED_SLASH in message:
        return ModelUnavailable(f"{url}: {message}", SEE_MODELS)
    if status in ("503", "429", "UNAVAILABLE"):
        cause, _, remedy = message.partition("; ")
        return ServerBusy(cause, remedy or "try again later", seconds=seconds(exc))
    if status in ("400", "INVALID_ARGUMENT"):
        if NO_SEQUENCE in message:
            return ModelUnavailable(
                f"{url}: the model takes frames of a sequence, not pictures", "use watch"
            )
        if SIGNATURE.search(message):
            return ModelUnavailable(
                f"{url}: {message}", "name a model that takes a picture as INPUT"
            )
        cause, _, remedy = message.partition("; ")
        if cause == OF_TLS:
            return ServerUnreachable(f"{url}: {cause}", remedy)
        return PictureRefused(cause, remedy or "try another picture")
    return ServerFault(f"{message} ({status})", SEE_LOGS)


def seconds(exc: Any) -> float:
    """That the server wants to be left alone, as far as it says and is waited for."""
    wait = getattr(exc, "retry_after", None) or ""
    return float(min(int(wait), LONGEST_PAUSE_S)) if wait.isdecimal() else 0.0


def not_trusted(url: str, why: str) -> ServerUnreachable:
    if OTHER_NAME.search(why):
        return ServerUnreachable(
            f"{url}: its certificate has another name",
            "ask under that one, or set BUNDLE_SERVER_NAME, or in Python server_name, to it",
        )
    return ServerUnreachable(
        f"{url}: its certificate is not trusted",
        "set BUNDLE_CA_FILE, or in Python ca_file, to its CA's certificate or to itself",
    )


def unreachable(url: str, exc: OSError) -> ServerUnreachable:
    if isinstance(exc, TimeoutError) and exc.errno is None:
        return ServerUnreachable(f"{url}: no connection in time", START_IT)
    return ServerUnreachable(f"{url}: {(exc.strerror or str(exc)).lower()}", START_IT)


def not_triton(url: str, protocol: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"{url}: what listens there does not answer as Triton does over {protocol}",
        CHECK_PORT,
    )


def hung_up() -> ServerFault:
    return ServerFault(
        "the server closed the connection without an answer",
        f"{SEE_LOGS}; or {CHECK_PORT}",
    )


def no_answer(timeout: float) -> ServerFault:
    return ServerFault(f"no answer within {timeout:g} s", "allow more time, or " + SEE_LOGS)


def pauses(rng: Callable[[float, float], float] = UNSEEDED.uniform) -> Iterator[float]:
    for number in range(MOST_AGAIN):
        yield FIRST_S * 2**number * rng(0.5, 1.5)


def patiently(ask: Callable[[], T], met: Callable[[], bool]) -> T:
    for pause in pauses():
        try:
            return ask()
        except (ServerBusy, ServerUnreachable) as fault:
            time.sleep(max(pause, _wanted_pause(fault, met())))
    return ask()


async def patiently_async(ask: Callable[[], Awaitable[T]], met: Callable[[], bool]) -> T:
    import asyncio  # which a synchronous program can do without

    for pause in pauses():
        try:
            return await ask()
        except (ServerBusy, ServerUnreachable) as fault:
            await asyncio.sleep(max(pause, _wanted_pause(fault, met())))
    return await ask()


def _wanted_pause(fault: ServerBusy | ServerUnreachable, met: bool) -> float:
    """A server that has answered before is missed only for a while, or another one takes its place
    behind the same address; of one that was never met, the address is wrong."""
    if isinstance(fault, ServerBusy):
        return fault.seconds
    if not met:
        raise fault
    return 0.0
