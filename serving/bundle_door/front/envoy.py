"""Envoy's configuration, of the files in config/, with what differs from server to server put in:
there a value between two pairs of braces stands for itself, as JSON, whatever is in it."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bundle_door import documents, limits, requests
from bundle_door.front import messages
from bundle_door.given import Given
from bundle_door.limits import Limits
from bundle_door.triton import MOST_WAITING, OF_AN_UNKNOWN_MODEL, ON_ITS_WAY, PASSES
from bundle_serving import address
from bundle_serving.address import BALANCED
from bundle_serving.process import guard, keeper_notes, sockets, traces
from bundle_serving.process.exposure import Exposure, compute_digest

Config = dict[str, Any]
# By name; 0: not opened.
Ports = Mapping[str, int]
# A service behind: its name, how many requests at most, its protocol, the sockets of its processes.
Service = tuple[str, int, Config, Sequence[str]]

# To the HTTP service, which itself says how many requests it takes, and how many whose bodies are
# on their way; what is far beyond that does not reach it, nor what takes streams. Health, metrics
# and the checks of keys always do.
MOST_CONNECTIONS, MORE = 4096, 64
HTTP1: Config = {"http_protocol_options": {}}
# Envoy takes each answer at once, whether its client reads it or not: what is left behind would
# take its part of the connection, which other clients' answers come on as well.
STREAM_WINDOW, CONNECTION_WINDOW = 256 << 20, (1 << 31) - 1
WINDOWS: Config = {
    "initial_stream_window_size": STREAM_WINDOW,
    "initial_connection_window_size": CONNECTION_WINDOW,
}
HTTP2: Config = {"http2_protocol_options": WINDOWS}
# A fault of a connection to Triton is one of few requests.
HTTP2_OF_FEW: Config = {"http2_protocol_options": {**WINDOWS, "max_concurrent_streams": 64}}
# For load balancers, which have no API key.
HEALTH = ["/v2/health/live", "/v2/health/ready"]
OWN_HOSTS = r"[0-9.]+|\[[0-9a-fA-F:.]+\]|[\w-]+|[\w.-]+\.localhost"
# Percentages, which are set while it runs: of streams that are refused, when a balancer stops; and
# of single messages that are to pass the door (singles.py).
STOPPING, SHARING = "stopping", "sharing"
# The files know the constants of these, and of this file, by their names.
KNOWN = (globals(), *map(vars, (messages, limits, requests, address, guard, traces)))


def build_door(given: Given, folder: Path, relay: Path | None = None) -> Config:
    """`relay` is the folder in which it also listens for what a relay hands on. Envoy has as many
    threads as the HTTP service has processes. One of several servers hands on to the others' doors
    what candidates there are to answer."""
    exposure, processes = given.exposure, given.processes
    hosts = "|".join([OWN_HOSTS, *map(re.escape, exposure.hosts)])
    return fill(
        "door.yaml",
        folder,
        **vars(given),
        relay=relay and str(relay),
        digests=list_digests(exposure),
        own_hosts=rf"(?i)({hosts})(:\d+)?",
        open_paths=list_open_paths(),
        arriving=messages.write_arrivals(
            at_door=True,
            has_keys=exposure.api_keys is not None,
            threads=processes,
            shared=folder / sockets.ROOM,
        ),
        asked=messages.write_asked(),
        before_triton=messages.write_program(
            "before_triton.lua",
            {
                "TRACED": given.traces is not None,
                "COMING": str(given.run_dir / keeper_notes.COMING),
                "UNKNOWN": OF_AN_UNKNOWN_MODEL,
                "ON_ITS_WAY": ON_ITS_WAY,
                "UNAVAILABLE": messages.UNAVAILABLE,
            },
        ),
        logs_all=["grpc"],
        services=list_services(folder, given.limits, processes),
    )


def build_balancer(
    servers: str,
    ports: Ports,
    address: str,
    folder: Path,
    limits: Limits,
    exposure: Exposure,
    name: str,
    certificates: Sequence[str] = (),
) -> Config:
    """`servers` is the name that DNS has all their addresses under; `name` this balancer's own. By
    `certificates`, those that servers may show besides."""
    return fill(
        "balancer.yaml",
        folder,
        servers=servers,
        address=address,
        ports=ports,
        limits=limits,
        exposure=exposure,
        name=name,
        digests=[*dict.fromkeys([*list_digests(exposure), *certificates])],
        relay=None,
        processes=1,
        arriving=messages.write_arrivals(at_door=False),
        logs_all=[],
        services=[("beside", MOST_CONNECTIONS, HTTP1, [str(folder / sockets.HTTP)])],
    )


def build_relay(ports: Ports, serving: Path, folder: Path, most: int) -> Config:
    return fill("relay.yaml", folder, ports=ports, serving=str(serving), most=most)


def fill(file: str, folder: Path, **values: Any) -> Config:
    """As Envoy reads it; `folder` has the sockets."""
    at = {
        name: str(folder / getattr(sockets, name)) for name in ("ENVOY_ADMIN", "LEAVING", "OTHERS")
    }
    text = load_templates().get_template(file).render(sockets=at, **values)
    made: Config = yaml.load(text, Loader=yaml.CSafeLoader)
    made.pop("shared", None)
    return made


@cache
def load_templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("config")),
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else json.dumps(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["seconds"] = "{:g}s".format
    for known in KNOWN:
        made.globals |= {name: value for name, value in known.items() if name.isupper()}
    made.globals |= {
        "match_stage": match_stage,
        "AGAIN": [*PASSES, ON_ITS_WAY],
        "MOST_WAITING": MOST_WAITING,
    }
    return made


def match_stage(stage: str) -> Config:
    """How far a message is, as arrivals.lua notes it."""
    value = {"string_match": {"safe_regex": {"regex": stage}}}
    return {"filter": messages.STAGES, "path": [{"key": "stage"}], "value": value}


def list_open_paths() -> list[tuple[Config, str]]:
    """And the service that answers there."""
    beside: list[Config] = [*({"path": path} for path in HEALTH), {"prefix": BALANCED}]
    shown = [({"path": path}, "http") for path in documents.paths()]
    own_cards = {"prefix": documents.ADDITIONS}, "http"
    return [*((match, "beside") for match in beside), *shown, own_cards]


def list_services(folder: Path, limits: Limits, processes: int) -> list[Service]:
    http, most = folder / sockets.HTTP, limits.in_flight + limits.arriving + MORE
    others = [folder / sockets.of_process(sockets.HTTP, n) for n in range(1, processes)]
    any_of_them: Service = ("any", most, HTTP1, [str(each) for each in (http, *others)])
    return [
        ("http", most, HTTP1, [str(http)]),
        *([any_of_them] if others else []),
        ("beside", MOST_CONNECTIONS, HTTP1, [str(http)]),
        ("triton", limits.in_flight, HTTP2_OF_FEW, [str(folder / sockets.GRPC)]),
        ("streams", limits.in_flight + MORE, HTTP2, [str(folder / sockets.STREAMS)]),
        ("singles", limits.in_flight, HTTP2_OF_FEW, [str(folder / sockets.STREAMS)]),
    ]


def list_digests(exposure: Exposure) -> list[str]:
    """Of the certificate that all servers show."""
    return [compute_digest(exposure.certificate)] if exposure.certificate else []
