"""What users may set of the door, besides to whom it is open: each once. The program takes it as an
option or as a variable; scripts/settings has it beside all others, and writes it to the documents
and, for containers, to compose.yaml and deploy/kubernetes:

    python -m scripts.settings.documents

Imports nothing large, for every command reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from bundle_serving.process import traces
from bundle_serving.process.traces import Collector

BODY_MB, IN_FLIGHT = 64, 1024
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


def read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError
    return int(text)


def count_processes(text: str, cores: int = 0) -> int:
    """Of the HTTP service; where that is not set, by the cores that are to be used."""
    if not text:
        cores = cores or int(os.environ.get("CORES") or len(os.sched_getaffinity(0)))
        return max(1, min(cores // CORES_OF_ONE, MOST_PROCESSES))
    if read_count(text) > MOST_PROCESSES:
        raise ValueError
    return int(text)


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


SETTINGS = (
    Setting(
        "CORS_ORIGINS",
        "",
        read_several,
        "origins",
        "Origins whose web pages may call the API: https://a.example",
    ),
    Setting(
        "MAX_BODY_MB",
        str(BODY_MB),
        read_count,
        "a positive integer",
        "The largest request, in megabytes.",
    ),
    Setting(
        "MAX_IN_FLIGHT",
        str(IN_FLIGHT),
        read_count,
        "a positive integer",
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
        "The form of the door's line for each request in the log.",
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
)
