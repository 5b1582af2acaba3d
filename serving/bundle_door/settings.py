"""What users may set of the door, besides to whom it is open: each once. The program takes it as an
option or as a variable; scripts/settings has it beside all others, and writes it to the documents
and, for containers, to compose.yaml and deploy/kubernetes:

    python -m scripts.settings.documents

Imports nothing large, for every command reads it.
"""

import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bundle_serving.process import traces
from bundle_serving.process.traces import Collector

BODY_MB, IN_FLIGHT = 64, 1024
# From 2^32 on, Envoy would refuse its configuration, and print it with the admin key in it.
MOST_IN_FLIGHT = 1_000_000
MOST_BODY_MB = (2**31 - 1) // 10**6  # of one message, for gRPC
MOST_MESSAGE_MB = 320  # what finds room where messages are gathered (messages.py, streams.py)
# One process of the HTTP service answers what four cores compute, or a part of a GPU.
PROCESSES, CORES_OF_ONE, MOST_PROCESSES = "DOOR_PROCESSES", 4, 32
TEXT, JSON = FORMATS = "text", "json"


class Setting(NamedTuple):
    name: str
    default: str
    # Raises ValueError.
    read: Callable[[str], object]
    wanted: str
    comment: str


def read_several(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def read_origins(text: str) -> tuple[str, ...]:
    """As browsers send them, in small letters: any other would match none."""
    origins = read_several(text.lower())
    if not all(re.fullmatch(r"https?://[^/\s*]+", each) for each in origins):
        raise ValueError
    return origins


def read_hosts(text: str) -> tuple[str, ...]:
    """With a scheme, a port or a star they would be no request's, nor fit into a certificate."""
    hosts = read_several(text)
    name_or_ipv6 = r"[\w.-]+|[\da-f]*:[\da-f:.]*:[\da-f.]*"
    if not all(re.fullmatch(name_or_ipv6, each, re.ASCII | re.IGNORECASE) for each in hosts):
        raise ValueError
    return hosts


def read_count(text: str, most: float = math.inf) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ValueError
    return int(text)


def count_processes(text: str, cores: int = 0) -> int:
    """Of the HTTP service; where that is not set, by the cores that are to be used."""
    if not text:
        cores = cores or int(os.environ.get("CORES") or len(os.sched_getaffinity(0)))
        return max(1, min(cores // CORES_OF_ONE, MOST_PROCESSES))
    return read_count(text, MOST_PROCESSES)


def read_format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError
    return text


def read_collector(text: str) -> Collector | None:
    return Collector.parse(text) if text else None


def read_share(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise ValueError
    return float(text)


class Keep(NamedTuple):
    """Which answered requests are kept: any of these is enough."""

    percent: float = 0.0
    under: float = 0.0  # this confidence
    differs: bool = False
    classes: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    def has_class(self, label: str) -> bool:
        """By its name; or its number, where an answer has no more."""
        return bool(self.classes) and plain_class(label).removeprefix("class ") in self.classes


NOTHING = Keep()


def plain_class(label: str) -> str:
    """However it is written: Song_Thrush, song-thrush."""
    return label.lower().replace("_", " ").replace("-", " ")


def read_keep(text: str) -> Keep:
    """1%, under:0.6, differs, class:tabby, key:shop"""
    kept = NOTHING
    for term in filter(None, map(str.strip, text.split(","))):
        name, is_pair, value = term.partition(":")
        if term == "differs":
            kept = kept._replace(differs=True)
        elif term.endswith("%"):
            kept = kept._replace(percent=100 * read_share(str(float(term[:-1]) / 100)))
        elif not is_pair or not value or name not in ("under", "class", "key"):
            raise ValueError
        elif name == "under":
            kept = kept._replace(under=read_share(value))
        elif name == "class":
            kept = kept._replace(classes=kept.classes | {plain_class(value)})
        else:
            kept = kept._replace(keys=kept.keys | {value})
    return kept


SETTINGS = (
    Setting(
        "CORS_ORIGINS",
        "",
        read_origins,
        "origins, each with its scheme and without a path: https://a.example",
        "Origins whose web pages may call the API: https://a.example",
    ),
    Setting(
        "MAX_BODY_MB",
        str(BODY_MB),
        partial(read_count, most=MOST_BODY_MB),
        f"a number from 1 to {MOST_BODY_MB}",
        f"The largest request, in megabytes; over gRPC at most {MOST_MESSAGE_MB}.",
    ),
    Setting(
        "MAX_IN_FLIGHT",
        str(IN_FLIGHT),
        partial(read_count, most=MOST_IN_FLIGHT),
        f"a number from 1 to {MOST_IN_FLIGHT}",
        "Requests handled at once; more are refused with 503.",
    ),
    Setting(
        PROCESSES,
        "",
        count_processes,
        f"a number from 1 to {MOST_PROCESSES}",
        f"""Processes of the HTTP service, and threads of Envoy; empty: one for each {CORES_OF_ONE}
        cores.""",
    ),
    Setting(
        "LOG_FORMAT",
        TEXT,
        read_format,
        " or ".join(FORMATS),
        "The form of the door's line for each request in the log: text or json.",
    ),
    Setting(
        traces.ENDPOINT,
        "",
        read_collector,
        "http://host:port",
        """Where an OpenTelemetry collector takes spans over HTTP: http://collector:4318. Empty: no
        traces.""",
    ),
    Setting(
        traces.RATIO,
        str(traces.USUAL_RATIO),
        read_share,
        "above 0 and at most 1",
        "The share of requests that are traced, where the client has not decided it.",
    ),
    Setting(
        "KEEP",
        "",
        read_keep,
        "one or more of 1%, under:0.6, differs, class:tabby, key:shop, with commas between",
        """Which answered requests are kept, with their answers: a share of all (1%), answers under
        a confidence (under:0.6), those that a shadow answers otherwise (differs), a class
        (class:tabby), everything of a key (key:shop). Empty: none. `make captured` shows them.""",
    ),
    Setting(
        "KEEP_MB",
        "1000",
        read_count,
        "a positive integer",
        "How many megabytes of requests KEEP keeps; the oldest go first.",
    ),
    Setting(
        "KEEP_DAYS",
        "30",
        read_count,
        "a positive integer",
        "For how many days KEEP keeps requests.",
    ),
)
