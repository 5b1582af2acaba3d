"""How much the door takes: from one request, and from all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from bundle_door.answers import RETRY_SOON, Refused

MEGABYTE = 1_000_000

# Of one request, over HTTP as over gRPC. Triton's time grows by the square of the inputs, and what
# it repeats of a name or a text must fit into a header of its answer.
MOST_TENSORS = 64  # inputs; outputs as well
MOST_PARAMETERS = 64  # of the request, and of each tensor
MOST_NAME = 256  # characters: of a model, version, tensor, parameter or region
MOST_ID = 128
MOST_TEXT = 4000  # characters of a parameter's value

# Of a form, besides its files; and of each part of it.
MOST_FIELDS = 32
MOST_FIELD_BYTES = 64_000
MOST_PART_HEADERS = 8_000
# What a compressed body may hold for each byte of it, and what it may hold anyway. Texts and pixels
# have up to 20 for each, nothing but zeros a thousand.
MOST_RATIO = 100
CLEAR_ANYWAY = 4 * MEGABYTE


@dataclass(frozen=True)
class Limits:
    # A request's body, as sent and as decompressed; over gRPC a message.
    body_bytes: int = 64 * MEGABYTE
    # JSON, of which Python makes objects of 20 times its size.
    json_bytes: int = 8 * MEGABYTE
    # Files in a form.
    pictures: int = 32
    # Of all requests that are being read or answered.
    in_flight: int = 1024
    in_flight_bytes: int = 256 * MEGABYTE
    connections: int = 4000
    # For an answer, for a request to arrive, and for a connection on which nothing happens.
    answer_s: float = 60
    arrival_s: float = 60
    idle_s: float = 300


class Load:
    """The requests that are being read or answered, and the bytes of their bodies."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = 0
        self.bytes = 0

    def request(self, always: bool = False) -> Share:
        if not always and self.requests >= self.limits.in_flight:
            raise busy(f"{self.requests} requests are in flight")
        return Share(self)

    def take(self, count: int) -> None:
        if self.bytes + count > self.limits.in_flight_bytes:
            raise busy(f"the requests in flight hold {self.bytes // MEGABYTE} MB")
        self.bytes += count


class Share:
    """What one request holds of the load, as long as it is entered."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._bytes = 0

    def __enter__(self) -> Share:
        self._load.requests += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._load.requests -= 1
        self._load.bytes -= self._bytes

    def take(self, count: int) -> None:
        self._load.take(count)
        self._bytes += count


def busy(why: str) -> Refused:
    return Refused(503, f"the server is busy: {why}; try again in a second", RETRY_SOON)


def too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit / MEGABYTE:g} MB; send less at once")
