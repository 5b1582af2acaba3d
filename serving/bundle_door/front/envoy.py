"""Envoy's configuration: the ports, what may pass them, and the sockets behind.

HTTP_PORT     → the HTTP service (service.py), which reads and checks each request; of several
                processes of it, what asks a model goes to any, and all else to the first
GRPC_PORT     → Triton's gRPC, the methods below; streams by way of streams.py
METRICS_PORT  → /metrics
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_door import documents
from bundle_door.front import arrivals, asked
from bundle_door.limits import LATE_S, Limits
from bundle_door.note import CLIENT_HEADER, REQUEST_ID
from bundle_door.triton import (
    MOST_WAITING,
    OF_AN_UNKNOWN_MODEL,
    ON_ITS_WAY,
    PASSES,
)
from bundle_serving.address import BALANCED
from bundle_serving.process import relayed, sockets
from bundle_serving.process.exposure import Exposure
from bundle_serving.process.guard import GRPC_HEADER
from bundle_serving.process.traces import SERVICE, TRACEPARENT, Collector

Config = dict[str, Any]

BUFFER = "envoy.filters.http.buffer"
LUA = "envoy.filters.http.lua"
AUTHORIZATION = "envoy.filters.http.ext_authz"
# To the HTTP service, which itself says how many requests it takes, and how many whose bodies are
# on their way; what is far beyond that does not reach it. Health, metrics and the checks of keys
# always do.
MOST_CONNECTIONS = 4096
MORE = 64
# Of what a client sends; a message over gRPC is read whole all the same.
CONNECTION_BYTES = 128 << 10
# Three times as much still fits into a header.
SMALL_BYTES = 16_000
HTTP1: Config = {"http_protocol_options": {}}
HTTP2: Config = {"http2_protocol_options": {}}
# A fault of a connection to Triton is one of few requests.
HTTP2_OF_FEW: Config = {"http2_protocol_options": {"max_concurrent_streams": 64}}

TYPES = "type.googleapis.com/envoy.extensions."
TRITON = "/inference.GRPCInferenceService/"
OPEN_METHODS = [
    f"{TRITON}{name}" for name in ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata")
]
# What is asked before a model is.
ABOUT_A_MODEL = [f"{TRITON}{name}" for name in ("ModelMetadata", "ModelConfig")]
# For load balancers, which have no API key.
HEALTH = ["/v2/health/live", "/v2/health/ready"]
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
INFER = f"{TRITON}ModelInfer"
STREAM = f"{TRITON}ModelStreamInfer"
LOAD = f"{TRITON}RepositoryModelLoad"
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE = "3", "4", "8", "14"
RETRY = ("retry-after", "1")
RETRIES = 32
ADMIN_METHODS = [
    f"{TRITON}{name}" for name in (
        "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
        "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
        "TraceSetting", "LogSettings",
    )
]  # fmt: skip

# What any process of the HTTP service answers.
ASKS = "/classify|/sentiment|/v2/models/.+/infer"
PREVIOUS_HOSTS = "retry.host.previous_hosts"

# An address, a name without a dot, or of this machine: what no page of the web can be under. A page
# that lets its own name point here (DNS rebinding) comes with that name.
OWN_HOSTS = r"[0-9.]+|\[[0-9a-fA-F:.]+\]|[\w-]+|[\w.-]+\.localhost"

# How often Envoy looks at its memory, and the smallest requests that it ends: from 2 to the power
# of 17 bytes on.
LOOK_S, SMALLEST_ENDED = 0.1, 17
# How long a connection without a request may then last; and what tells it to end them anyway.
IDLE_WHEN_FULL_S, LEAVING = 1, "injected_resource"
RELEASED_BYTES, RELEASE_S = 100 << 20, 1
# Beyond this it returns what it does not use at once, and otherwise after five minutes.
USUAL_BYTES = 40 << 20
# A client that has opened a connection, or begun a request's headers, gets so long to go on.
HEADERS_S = 10


@dataclass(frozen=True)
class Ports:
    """0: not opened."""

    address: str
    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True)
class Traces:
    collector: Collector
    # The share of requests that are traced, of those whose client has not decided it.
    ratio: float


def config(
    ports: Ports,
    folder: Path,
    limits: Limits,
    exposure: Exposure,
    admin_key: str | None,
    coming: Path,
    traces: Traces | None = None,
    relay: Path | None = None,
    processes: int = 1,
) -> Config:
    """All of it, as Envoy reads it from YAML; `coming` is the keeper's note, and `relay` the folder
    in which it also listens for what a relay hands on. Of the HTTP service there are so many
    `processes`, and as many threads of Envoy."""
    room = arrivals.Room(processes, folder / sockets.ROOM)
    at_ports = [
        listener(
            name,
            ports.address,
            port,
            manager(name, routes, limits, exposure, traces, room),
            exposure,
            limits,
            processes,
        )
        for name, port, routes in (
            (relayed.HTTP, ports.http, http_routes(limits, processes)),
            (relayed.GRPC, ports.grpc, grpc_routes(limits, admin_key)),
            (relayed.METRICS, ports.metrics, metrics_routes()),
        )
        if port
    ]
    behind_it = [take_relayed(each, relay) for each in at_ports] if relay else []
    return {
        "admin": {"address": pipe(folder / sockets.ENVOY_ADMIN)},
        "static_resources": {
            "listeners": [*at_ports, *behind_it],
            "clusters": [
                *http_clusters(folder, limits, processes),
                cluster("beside", folder / sockets.HTTP, HTTP1, most=MOST_CONNECTIONS),
                cluster(
                    "triton",
                    folder / sockets.GRPC,
                    HTTP2_OF_FEW,
                    limits.in_flight,
                    upstream_filters(coming, traces),
                ),
                cluster("streams", folder / sockets.STREAMS, HTTP2, most=limits.in_flight),
                *([collector(traces)] if traces else []),
            ],
        },
        "overload_manager": overload(limits, folder),
        # Else it keeps what a burst took.
        "memory_allocator_manager": {
            "bytes_to_release": RELEASED_BYTES,
            "memory_release_interval": seconds(RELEASE_S),
            "soft_memory_limit_bytes": USUAL_BYTES,
        },
    }


# What passes each port


def http_clusters(folder: Path, limits: Limits, processes: int) -> list[Config]:
    most = limits.in_flight + limits.arriving + MORE
    first = cluster("http", folder / sockets.HTTP, HTTP1, most)
    if processes == 1:
        return [first]
    others = [folder / sockets.of_process(sockets.HTTP, n) for n in range(1, processes)]
    any_of_them = cluster("any", folder / sockets.HTTP, HTTP1, most, others=others)
    return [first, any_of_them]


def http_routes(limits: Limits, processes: int = 1) -> list[Config]:
    asks = with_another(route_to("any", {"safe_regex": {"regex": ASKS}}, limits.answer_s + 5))
    return [
        refusal({"prefix": "/internal/"}, 404, "Not Found"),
        *(without_key(route_to("beside", {"path": path}, timeout_s=10)) for path in HEALTH),
        without_key(route_to("beside", {"prefix": BALANCED}, timeout_s=10)),
        *(
            without_key(route_to("http", {"path": path}, timeout_s=10))
            for path in documents.paths()
        ),
        *([asks] if processes > 1 else []),
        route_to("http", {"prefix": "/"}, timeout_s=limits.answer_s + 5),
    ]


def metrics_routes() -> list[Config]:
    return [
        refusal(with_header({"prefix": "/"}, "origin", {"present_match": True}), 403, FOREIGN_PAGE),
        route_to("beside", {"path": "/metrics"}, timeout_s=10, rewrite="/internal/metrics"),
    ]


def grpc_routes(limits: Limits, admin_key: str | None) -> list[Config]:
    return [
        refusal(with_header({"prefix": "/"}, "origin", {"present_match": True}), 403, FOREIGN_PAGE),
        refusal(
            match_without({"prefix": "/"}, "content-type", {"prefix": "application/grpc"}),
            415,
            NO_GRPC,
        ),
        refuse_compressed(),
        small(
            without_key(in_time(route_to("triton", {"path": HEALTH_METHOD}, timeout_s=10), limits))
        ),
        *in_stages(infer_route(limits)),
        *(
            small(in_time(route_to("triton", {"path": path}, limits.answer_s), limits))
            for path in OPEN_METHODS
        ),
        *(
            small(again(in_time(route_to("triton", {"path": path}, limits.answer_s), limits)))
            for path in ABOUT_A_MODEL
        ),
        without_buffer(route_to("streams", {"path": STREAM}, timeout_s=0)),
        *(route for path in ADMIN_METHODS for route in admin_routes(path, admin_key)),
    ]


def infer_route(limits: Limits) -> Config:
    in_order = again(in_time(route_to("triton", {"path": INFER}, limits.answer_s), limits))
    return {**in_order, "request_body_buffer_limit": arrivals.KEPT_BYTES}


def in_stages(route: Config) -> list[Config]:
    """By how far the message is, which arrivals.lua notes: the route is chosen anew then, and with
    it what time is left."""
    hurried = at_stage("hurried", route, idle_timeout=seconds(arrivals.PAUSE_S))
    arriving = {**route, "route": {**route["route"], "idle_timeout": seconds(LATE_S)}}
    return [ended_at_once(route), at_stage("complete", route), hurried, arriving]


def ended_at_once(route: Config) -> Config:
    duration = {"max_stream_duration": seconds(0.001)}
    return at_stage("late|refused", route, max_stream_duration=duration)


def at_stage(stage: str, route: Config, **own: Any) -> Config:
    noted = {"dynamic_metadata": [noted_stage(stage)]}
    return {**route, "match": {**route["match"], **noted}, "route": {**route["route"], **own}}


def noted_stage(stage: str) -> Config:
    value = {"string_match": {"safe_regex": {"regex": stage}}}
    return {"filter": arrivals.STAGES, "path": [{"key": "stage"}], "value": value}


def admin_routes(path: str, admin_key: str | None) -> list[Config]:
    without_key = refusal({"path": path}, 403, f"expecting the admin key in '{GRPC_HEADER}'")
    if admin_key is None:
        return [without_key]
    with_key = with_header({"path": path}, GRPC_HEADER, {"string_match": {"exact": admin_key}})
    # A load takes as long as it takes, and may bring a model's files with it.
    bounded = without_buffer if path == LOAD else small
    return [bounded(route_to("triton", with_key, timeout_s=0)), without_key]


def refuse_compressed() -> Config:
    """What a small message becomes would be for Triton to hold. HTTP/2's error for a client that
    asks for what is not here is 404, which Envoy makes UNIMPLEMENTED, as gRPC wants it."""
    match = match_without({"prefix": "/"}, "grpc-encoding", {"exact": "identity"})
    match["headers"].append({"name": "grpc-encoding", "present_match": True})
    accepted = {"header": {"key": "grpc-accept-encoding", "value": "identity"}}
    return {**refusal(match, 404, COMPRESSED), "response_headers_to_add": [accepted]}


NO_TLS = "this port speaks TLS; use https:// and trust its certificate (over gRPC: grpcs://)"
NO_GRPC = "this port speaks gRPC; use the other one for HTTP"
COMPRESSED = "compressed messages are not taken; send them as they are, or gzip over HTTP"
TOO_SLOW = "the message came too slowly, or nothing for too long; send it again"
NO_ROOM = "the server is busy: your messages take too much of its memory; try again in a second"
FOREIGN_PAGE = "requests from web pages are not allowed here"
FOREIGN_HOST = (
    "the Host is not a name of this server; use its address, or add the name to ALLOWED_HOSTS"
)


# The parts of Envoy's configuration


def listener(
    name: str,
    address: str,
    port: int,
    manager: Config,
    exposure: Exposure,
    limits: Limits,
    threads: int = 1,
) -> Config:
    chains: list[Config] = [{"filters": [manager]}]
    inspectors: list[Config] = []
    if exposure.certificate:
        protocols = ["h2"] if name == "grpc" else ["h2", "http/1.1"]
        chains[0]["transport_socket"] = tls(exposure, protocols)
        chains.append(without_tls(name, limits))
        kind = "filters.listener.tls_inspector"
        inspectors.append(extension(f"envoy.{kind}", f"{kind}.v3.TlsInspector"))
    socket_address = {"address": address, "port_value": port}
    if address == "::":
        socket_address["ipv4_compat"] = True
    return {
        "name": name,
        "address": {"socket_address": socket_address},
        # What a connection may have waiting here; more is left to the client's end.
        "per_connection_buffer_limit_bytes": CONNECTION_BYTES,
        "listener_filters": inspectors,
        "listener_filters_timeout": seconds(HEADERS_S),
        "filter_chains": chains,
        # Clients' few, long connections: the kernel would give one thread more than another.
        **({"connection_balance_config": {"exact_balance": {}}} if threads > 1 else {}),
    }


def take_relayed(listener: Config, folder: Path) -> Config:
    """The same for what a relay hands on, which says first from which address it comes."""
    kind = "filters.listener.proxy_protocol"
    whose = extension(f"envoy.{kind}", f"{kind}.v3.ProxyProtocol")
    return listener | {
        "name": f"{listener['name']}, relayed",
        "address": pipe(folder / listener["name"]),
        "listener_filters": [whose, *listener["listener_filters"]],
    }


def without_tls(name: str, limits: Limits) -> Config:
    """For who speaks no TLS to a port that does, and would else only see the connection end."""
    hint = refusal({"prefix": "/"}, 400, NO_TLS)
    answering = connections(name, [hint], [router()], limits)
    return {"filter_chain_match": {"transport_protocol": "raw_buffer"}, "filters": [answering]}


def tls(exposure: Exposure, protocols: list[str]) -> Config:
    certificate = {
        "certificate_chain": {"filename": str(exposure.certificate)},
        "private_key": {"filename": str(exposure.private_key)},
    }
    return extension(
        "envoy.transport_sockets.tls",
        "transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={"tls_certificates": [certificate], "alpn_protocols": protocols},
    )


def manager(
    name: str,
    routes: Sequence[Config],
    limits: Limits,
    exposure: Exposure,
    traces: Traces | None,
    room: arrivals.Room,
) -> Config:
    grpc, keys = name == "grpc", exposure.api_keys is not None
    arriving = lua(arrivals.program(at_door=True, has_keys=keys, room=room))
    for_grpc = [arriving, buffer(limits), lua(asked.program())] if grpc else []
    return connections(
        name,
        [*foreign_hosts(exposure), *routes],
        [*([authorization()] if keys else []), *for_grpc, router()],
        limits,
        # Over HTTP the service does it, which refuses odd ones; but Envoy traces none without.
        generate_request_id=grpc or traces is not None,
        preserve_external_request_id=grpc or traces is not None,
        request_id_extension=UNCHANGED_IDS,
        always_set_request_id_in_response=grpc,
        access_log=[access_log(name)],
        **({"tracing": tracing(traces)} if traces and name != "metrics" else {}),
    )


def connections(
    name: str,
    routes: Sequence[Config],
    filters: Sequence[Config],
    limits: Limits,
    **more: Any,
) -> Config:
    """What clients' connections may do, whatever they ask for."""
    grpc = name == "grpc"
    return extension(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        codec_type="HTTP2" if grpc else "AUTO",
        server_name="triton-bundle",
        use_remote_address=True,
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action="REJECT_REQUEST",
        max_request_headers_kb=32,
        request_headers_timeout=seconds(HEADERS_S),
        # A stream over gRPC is a request that is never complete.
        request_timeout=seconds(0 if grpc else limits.arrival_s),
        stream_idle_timeout=seconds(max(limits.idle_s, limits.answer_s + 5)),
        common_http_protocol_options={"idle_timeout": seconds(limits.idle_s)},
        http_protocol_options={"accept_http_10": True, "default_host_for_http_10": "localhost"},
        http2_protocol_options={
            "max_concurrent_streams": 1024,
            "initial_stream_window_size": 1 << 20,
            "initial_connection_window_size": 4 << 20,
        },
        local_reply_config=own_refusals(grpc),
        route_config={"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [*routes]}]},
        http_filters=[*filters],
        **more,
    )


def tracing(traces: Traces) -> Config:
    """A span for each request whose client wants one, and a share of those whose client does not
    say; the steps' spans are its children."""
    uri = {"uri": traces.collector.url, "cluster": "collector", "timeout": seconds(2)}
    share = sampler("trace_id_ratio_based", "TraceIdRatioBased", **percentage(traces.ratio))
    provider = {
        "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
        "service_name": SERVICE,
        "http_service": {"http_uri": uri},
        "sampler": sampler("parent_based", "ParentBased", wrapped_sampler=share),
    }
    return {"provider": {"name": "envoy.tracers.opentelemetry", "typed_config": provider}}


def sampler(name: str, kind: str, **options: Any) -> Config:
    folder = "tracers.opentelemetry.samplers"
    return extension(f"envoy.{folder}.{name}", f"{folder}.v3.{kind}SamplerConfig", **options)


def percentage(ratio: float) -> Config:
    parts = {"numerator": round(ratio * 1_000_000), "denominator": "MILLION"}
    return {"sampling_percentage": parts}


def collector(traces: Traces) -> Config:
    """May be away: what it does not take within two seconds is dropped."""
    to = {"address": traces.collector.host, "port_value": traces.collector.port}
    endpoint = {"endpoint": {"address": {"socket_address": to}}}
    return {
        "name": "collector",
        "type": "STRICT_DNS",
        "connect_timeout": seconds(2),
        "load_assignment": {
            "cluster_name": "collector",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }


def own_refusals(grpc: bool) -> Config:
    """What Envoy itself refuses, in the form of Triton's answers."""
    if grpc:
        statuses = {400: INVALID_ARGUMENT, 408: DEADLINE_EXCEEDED, 413: RESOURCE_EXHAUSTED}
        mappers = {code: add_header(code, "grpc-status", to) for code, to in statuses.items()}
        mappers[408] |= {"body": {"inline_string": TOO_SLOW}}
        return {"mappers": [no_room(), *mappers.values()]}
    return {
        "mappers": [add_header(503, *RETRY)],
        "body_format": {"json_format": {"error": "%LOCAL_REPLY_BODY%"}},
    }


def no_room() -> Config:
    noted = {"matcher": noted_stage("refused|hurried"), "match_if_key_not_found": False}
    unavailable = {
        **add_header(408, "grpc-status", UNAVAILABLE),
        "body": {"inline_string": NO_ROOM},
    }
    return {**unavailable, "filter": {"metadata_filter": noted}}


def add_header(status: int, name: str, value: str) -> Config:
    comparison = {"op": "EQ", "value": {"default_value": status, "runtime_key": "unused"}}
    return {
        "filter": {"status_code_filter": {"comparison": comparison}},
        "headers_to_add": [
            {
                "header": {"key": name, "value": value},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }


def buffer(limits: Limits) -> Config:
    """A message is passed on when it is complete, and never when it is too large."""
    return extension(
        BUFFER,
        "filters.http.buffer.v3.Buffer",
        max_request_bytes=limits.body_bytes,
    )


def lua(program: str) -> Config:
    source = {"inline_string": program}
    return extension(LUA, "filters.http.lua.v3.Lua", default_source_code=source)


def router() -> Config:
    return extension(
        "envoy.filters.http.router", "filters.http.router.v3.Router", suppress_envoy_headers=True
    )


def route_to(name: str, match: Config, timeout_s: float, rewrite: str = "") -> Config:
    route: Config = {"cluster": name, "timeout": seconds(timeout_s)}
    if rewrite:
        route["prefix_rewrite"] = rewrite
    return {"match": match, "route": route}


def in_time(route: Config, limits: Limits) -> Config:
    """No stream: from its first byte to the last of its answer, however slowly it comes."""
    whole = {"max_stream_duration": seconds(limits.arrival_s + limits.answer_s)}
    silent = seconds(limits.answer_s + 5)
    own = {"max_stream_duration": whole, "idle_timeout": silent}
    return {**route, "route": {**route["route"], **own}}


def again(route: Config) -> Config:
    """As Triton.infer does: where one of a model's processes has died, or Triton is started again
    and has not loaded the model yet. Waits for three quarters of a minute in all: each pause is
    drawn at random."""
    messages = [
        {"name": "grpc-message", "string_match": {"contains": text}}
        for text in (*PASSES, ON_ITS_WAY)
    ]
    policy = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-headers",
        "retriable_headers": messages,
        "num_retries": RETRIES,
        "retry_back_off": {"base_interval": "0.25s", "max_interval": "3s"},
    }
    return {**route, "route": {**route["route"], "retry_policy": policy}}


def with_another(route: Config) -> Config:
    """If the process that was chosen is gone: before it took the request, or with it. So it is kept
    here until it is answered; how much all of them hold, the HTTP service bounds."""
    policy = {
        "retry_on": "connect-failure,reset",
        "num_retries": 2,
        "retry_host_predicate": [
            extension(f"envoy.{PREVIOUS_HOSTS}", f"{PREVIOUS_HOSTS}.v3.PreviousHostsPredicate")
        ],
        "host_selection_retry_max_attempts": 5,
    }
    retried = {**route["route"], "retry_policy": policy}
    return {**route, "route": retried, "request_body_buffer_limit": arrivals.KEPT_BYTES}


def refusal(match: Config, status: int, why: str) -> Config:
    return {"match": match, "direct_response": {"status": status, "body": {"inline_string": why}}}


def with_header(match: Config, name: str, value: Config) -> Config:
    return {**match, "headers": [{"name": name, **value}]}


def match_without(match: Config, name: str, value: Config) -> Config:
    return with_header(match, name, {"string_match": value, "invert_match": True})


def foreign_hosts(exposure: Exposure) -> list[Config]:
    """Not with keys, which a page does not have, whatever its name points to."""
    if exposure.api_keys:
        return []
    hosts = "|".join([OWN_HOSTS, *map(re.escape, exposure.hosts)])
    own = {"safe_regex": {"regex": rf"({hosts})(:\d+)?"}}
    match = match_without({"prefix": "/"}, ":authority", own)
    return [refusal(match, 403, FOREIGN_HOST)]


def authorization() -> Config:
    """Each request's key is shown to the HTTP service (keys.py) before it may pass."""
    of_key = {"patterns": [{"exact": "authorization"}]}
    return extension(
        AUTHORIZATION,
        "filters.http.ext_authz.v3.ExtAuthz",
        http_service={
            "server_uri": {"uri": "http://localhost", "cluster": "beside", "timeout": seconds(2)},
            "path_prefix": "/internal/authorize",
            "authorization_response": {
                "allowed_upstream_headers": {"patterns": [{"exact": CLIENT_HEADER}]},
                "dynamic_metadata_from_headers": {"patterns": [{"exact": CLIENT_HEADER}]},
            },
        },
        allowed_headers=of_key,
        status_on_error={"code": "ServiceUnavailable"},
    )


def access_log(port: str) -> Config:
    """What the HTTP service does not see; read by envoy_lines.py."""
    config = extension(
        "envoy.access_loggers.stdout",
        "access_loggers.stream.v3.StdoutAccessLog",
        log_format={
            "json_format": {
                "port": port,
                "began": "%START_TIME(%s.%3f)%",
                "us": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
                "status": "%RESPONSE_CODE%",
                "bytes_in": "%BYTES_RECEIVED%",
                "bytes_out": "%BYTES_SENT%",
                "id": f"%REQ({REQUEST_ID}):200%",
                "client": f"%DYNAMIC_METADATA({AUTHORIZATION}:{CLIENT_HEADER})%",
                "method": "%REQ(:METHOD)%",
                "path": "%PATH(NQ):200%",
                "model": f"%DYNAMIC_METADATA({LUA}:model)%",
                "version": f"%DYNAMIC_METADATA({LUA}:version)%",
                "rows": f"%DYNAMIC_METADATA({LUA}:rows)%",
                "grpc_status": "%GRPC_STATUS(SNAKE_STRING)%",
                "traceparent": f"%REQ({TRACEPARENT}):200%",
                "details": "%RESPONSE_CODE_DETAILS%",
            }
        },
    )
    return config if port == "grpc" else own_answers(config)


def own_answers(access_log: Config) -> Config:
    """Of what Envoy itself has answered alone."""
    by_envoy = {"expression": 'response.code_details != "via_upstream"'}
    kind = "access_loggers.filters.cel.v3.ExpressionFilter"
    return {
        **access_log,
        "filter": {
            "extension_filter": extension(
                "envoy.access_loggers.extension_filters.cel", kind, **by_envoy
            )
        },
    }


def without_buffer(route: Config) -> Config:
    return disable_filter(route, BUFFER, "buffer.v3.BufferPerRoute")


def small(route: Config) -> Config:
    """For messages of a name or two, which Triton may repeat in a header of its answer."""
    own = {
        "@type": f"{TYPES}filters.http.buffer.v3.BufferPerRoute",
        "buffer": {"max_request_bytes": SMALL_BYTES},
    }
    filters = {**route.get("typed_per_filter_config", {}), BUFFER: own}
    return {**route, "typed_per_filter_config": filters}


def without_key(route: Config) -> Config:
    """Of whom it comes, only a key says."""
    anonymous = {**route, "request_headers_to_remove": [CLIENT_HEADER]}
    return disable_filter(anonymous, AUTHORIZATION, "ext_authz.v3.ExtAuthzPerRoute")


def disable_filter(route: Config, name: str, kind: str) -> Config:
    """Without that filter on this route, where there is one at all."""
    off = {"@type": f"{TYPES}filters.http.{kind}", "disabled": True}
    return {**route, "typed_per_filter_config": {name: off}}


def cluster(
    name: str,
    path: Path,
    protocol: Config,
    most: int,
    filters: Sequence[Config] = (),
    others: Sequence[Path] = (),
) -> Config:
    options = {
        "@type": f"{TYPES}upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": protocol,
        # Less than the other end's, which would else close what is just being used.
        "common_http_protocol_options": {"idle_timeout": seconds(30)},
        **({"http_filters": list(filters)} if filters else {}),
    }
    endpoints = [{"endpoint": {"address": pipe(each)}} for each in (path, *others)]
    thresholds = {
        "max_connections": MOST_CONNECTIONS,
        "max_pending_requests": MOST_CONNECTIONS,
        "max_requests": most,
        "max_retries": MOST_WAITING,
    }
    return {
        "name": name,
        "connect_timeout": seconds(2),
        # To the one that has least to do.
        **({"lb_policy": "LEAST_REQUEST"} if others else {}),
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
        "circuit_breakers": {"thresholds": [thresholds]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
    }


def overload(limits: Limits, folder: Path) -> Config:
    """Of its memory: from a share on, those requests end first that hold most, and connections
    without any; where that is not enough, new ones are refused. When it is to end, connections
    without a request do, too (`envoy_process.drain`)."""
    heap, leaving = (f"envoy.resource_monitors.{name}" for name in ("fixed_heap", LEAVING))
    reduced = action(
        "reduce_timeouts", scale_monitor(heap, arrivals.FULL, 0.9), threshold(leaving, 1)
    )
    return {
        "refresh_interval": seconds(LOOK_S),
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": SMALLEST_ENDED},
        "resource_monitors": [
            extension(
                heap,
                "resource_monitors.fixed_heap.v3.FixedHeapConfig",
                max_heap_size_bytes=arrivals.HEAP_BYTES,
            ),
            extension(
                leaving,
                f"resource_monitors.{LEAVING}.v3.InjectedResourceConfig",
                filename=str(folder / sockets.LEAVING),
            ),
            extension(
                "envoy.resource_monitors.global_downstream_max_connections",
                "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                max_active_downstream_connections=limits.connections,
            ),
        ],
        "actions": [
            action("reset_high_memory_stream", scale_monitor(heap, arrivals.FULL, 0.9)),
            {**reduced, "typed_config": sooner()},
            action("shrink_heap", threshold(heap, 0.8)),
            action("disable_http_keepalive", threshold(heap, 0.9)),
            action("stop_accepting_requests", threshold(heap, 0.95)),
        ],
    }


def action(name: str, *triggers: Config) -> Config:
    return {"name": f"envoy.overload_actions.{name}", "triggers": [*triggers]}


def threshold(monitor: str, value: float) -> Config:
    return {"name": monitor, "threshold": {"value": value}}


def scale_monitor(monitor: str, begins: float, full: float) -> Config:
    scale = {"scaling_threshold": begins, "saturation_threshold": full}
    return {"name": monitor, "scaled": scale}


def sooner() -> Config:
    """What remains of a timeout at the most."""
    idle = {"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": seconds(IDLE_WHEN_FULL_S)}
    kind = "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig"
    return {"@type": kind, "timer_scale_factors": [idle]}


def extension(extension_name: str, kind: str, **options: Any) -> Config:
    return {"name": extension_name, "typed_config": {"@type": TYPES + kind, **options}}


def pipe(path: Path) -> Config:
    return {"pipe": {"path": str(path)}}


def seconds(value: float) -> str:
    return f"{value:g}s"


# Else Envoy decides by the id whether to trace, and writes that into it.
UNCHANGED_IDS = {
    "typed_config": {
        "@type": f"{TYPES}request_id.uuid.v3.UuidRequestIdConfig",
        "pack_trace_reason": False,
        "use_request_id_for_trace_sampling": False,
    }
}

# The steps report each request with a `traceparent`, also one that says it is not to be traced.
WANTED = """
function envoy_on_request(handle)
  local given = handle:headers():get("traceparent")
  if given and not given:match("[13579bdf]$") then
    handle:headers():remove("traceparent")
  end
end
"""
# Triton tells nobody that a model is still to be loaded; the keeper notes it.
NOT_YET = f"""
function envoy_on_response(handle)
  local headers = handle:headers()
  local said = headers:get("grpc-message") or ""
  local model = said:match("^{OF_AN_UNKNOWN_MODEL}: '(.-)'")
  local note = model and io.open(COMING)
  if note then
    if note:read("*a"):find('"' .. model .. '"', 1, true) then
      headers:replace("grpc-status", "{UNAVAILABLE}")
      headers:replace("grpc-message", "{ON_ITS_WAY}")
    end
    note:close()
  end
end
"""


def upstream_filters(coming: Path, traces: Traces | None) -> list[Config]:
    """What is done to each request to Triton, and to its answer, before it may be sent again."""
    codec = "filters.http.upstream_codec"
    program = f"local COMING = {json.dumps(str(coming))}{WANTED if traces else ''}{NOT_YET}"
    return [lua(program), extension(f"envoy.{codec}", f"{codec}.v3.UpstreamCodec")]
