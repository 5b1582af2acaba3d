"""Envoy's configuration as a balancer before many doors, whose addresses DNS knows.

HTTP_PORT, GRPC_PORT  → of the servers that are ready the one with the fewest requests
METRICS_PORT          → the balancer's own /metrics, for those in the servers' network

Each request is balanced by itself, over HTTP and gRPC, whatever connection it comes on; a stream
over gRPC is one request. The doors ask for keys and bound what is sent: only paths are read here.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Sequence
from pathlib import Path

from bundle_door.front import arrivals
from bundle_door.front.envoy import (
    ABOUT_A_MODEL,
    HTTP1,
    HTTP2,
    INFER,
    MOST_CONNECTIONS,
    OPEN_METHODS,
    STREAM,
    TYPES,
    Config,
    access_log,
    connections,
    ended_at_once,
    extension,
    listener,
    lua,
    metrics_routes,
    overload,
    own_answers,
    pipe,
    refusal,
    router,
    seconds,
)
from bundle_door.front.envoy import cluster as of_socket
from bundle_door.limits import Limits
from bundle_serving.address import BALANCER_HEADER, PEM_END, SERVER_HEADER
from bundle_serving.process import sockets
from bundle_serving.process.exposure import Exposure

# The doors' ports, and the balancer's own.
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002

# A percentage, which is set when it stops: of streams that are refused.
STOPPING, STOPS = "stopping", "the balancer is stopping; open the stream again"
DNS_S = 1
# By the door's readiness, which is what the server's keeper found with a real picture.
CHECK_S, CHECKS_FAILED = 2, 2
# A server that does not even answer a ping of its connection for so long, because its machine, its
# network or all of it stands still, loses the requests that it has to others.
PING_S, PING_TIMEOUT_S = 2, 3
# Refused connections in a row, and for how long a server is then left alone.
REFUSED, EJECTED_S = 3, 5
TRIES = 4
# A share of all requests may be at their second try or later: retries do not multiply an overload.
RETRIES_PERCENT, RETRIES_ALWAYS = 25, 64

# A server that is not reached, or says that it does not begin: nothing has happened.
NOT_BEGUN = "connect-failure,refused-stream"
# An inference changes nothing: where its connection breaks, another server computes it once more.
# A 503 of a door is a full queue, or a server that stops.
HARMLESS = f"{NOT_BEGUN},reset"
PURE = r"/v2/models/[^/]+(/versions/[^/]+)?/infer|/classify|/sentiment"


def config(
    servers: str, address: str, folder: Path, limits: Limits, exposure: Exposure, name: str
) -> Config:
    """`servers` is the name that DNS has all their addresses under; `name` this balancer's own."""
    ports = {"http": HTTP_PORT, "grpc": GRPC_PORT}
    listened = [
        ("http", HTTP_PORT, http_routes(limits)),
        ("grpc", GRPC_PORT, grpc_routes(limits, name)),
        ("metrics", METRICS_PORT, metrics_routes()),
    ]
    return {
        "admin": {"address": pipe(folder / sockets.ENVOY_ADMIN)},
        "static_resources": {
            "listeners": [
                listener(what, address, port, manager(what, routes, limits), exposure, limits)
                for what, port, routes in listened
            ],
            "clusters": [
                *(cluster(what, servers, port, exposure) for what, port in ports.items()),
                of_socket("beside", folder / sockets.HTTP, HTTP1, most=MOST_CONNECTIONS),
            ],
        },
        "overload_manager": overload(limits, folder),
        "layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]},
    }


def manager(name: str, routes: Sequence[Config], limits: Limits) -> Config:
    # The doors make ids, and log each request that comes to them.
    return connections(
        name,
        routes,
        # What is sent again is kept until it is answered.
        [*([lua(arrivals.program(at_door=False))] if name == "grpc" else []), router()],
        limits,
        generate_request_id=False,
        preserve_external_request_id=True,
        access_log=[own_answers(access_log(name))],
    )


def http_routes(limits: Limits) -> list[Config]:
    again = {"retry_on": f"{HARMLESS},retriable-status-codes", "retriable_status_codes": [503]}
    get = {"name": ":method", "string_match": {"exact": "GET"}}
    return [
        route({"safe_regex": {"regex": PURE}}, "http", limits, again),
        route({"prefix": "/", "headers": [get]}, "http", limits, again),
        route({"prefix": "/"}, "http", limits, {"retry_on": NOT_BEGUN}),
    ]


def grpc_routes(limits: Limits, name: str) -> list[Config]:
    again = {"retry_on": f"{HARMLESS},unavailable"}
    infer = route({"path": INFER}, "grpc", limits, again)
    infer["request_body_buffer_limit"] = arrivals.KEPT_BYTES
    stops = {"default_value": {"numerator": 0}, "runtime_key": STOPPING}
    # Until its first answer: a server that stops takes no further streams.
    stream = route({"path": STREAM}, "grpc", limits, {"retry_on": f"{NOT_BEGUN},unavailable"}, 0)
    through = {
        "header": {"key": BALANCER_HEADER, "value": name},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    return [
        refusal({"path": STREAM, "runtime_fraction": stops}, 503, STOPS),
        # How slowly a message may come, the doors say, to which it goes on as it comes.
        *(ended_at_once(infer), infer),
        *(route({"path": path}, "grpc", limits, again) for path in (*OPEN_METHODS, *ABOUT_A_MODEL)),
        {**stream, "request_headers_to_add": [through]},
        # A load takes as long as it takes.
        route({"prefix": "/"}, "grpc", limits, {"retry_on": NOT_BEGUN}, timeout_s=0),
    ]


def route(
    match: Config, name: str, limits: Limits, again: Config, timeout_s: float | None = None
) -> Config:
    # The doors' own limit comes first.
    timeout_s = limits.answer_s + 10 if timeout_s is None else timeout_s
    previous = "retry_host_predicates.previous_hosts"
    kind = "retry.host.previous_hosts.v3.PreviousHostsPredicate"
    policy = {
        **again,
        "num_retries": TRIES - 1,
        "retry_host_predicate": [extension(f"envoy.{previous}", kind)],
        "host_selection_retry_max_attempts": 5,
    }
    shown = {"key": SERVER_HEADER, "value": "%UPSTREAM_REMOTE_ADDRESS%"}
    return {
        "match": match,
        "route": {"cluster": name, "timeout": seconds(timeout_s), "retry_policy": policy},
        # What is sent again must have been kept; `overload` bounds all of it.
        "request_body_buffer_limit": limits.body_bytes,
        "response_headers_to_add": [{"header": shown}],
    }


def cluster(name: str, servers: str, port: int, exposure: Exposure) -> Config:
    ping = {"interval": seconds(PING_S), "timeout": seconds(PING_TIMEOUT_S)}
    protocol = HTTP2["http2_protocol_options"] | {
        "connection_keepalive": ping,
        "initial_stream_window_size": 1 << 20,
        "initial_connection_window_size": 4 << 20,
    }
    options = {
        "@type": f"{TYPES}upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": protocol},
        "common_http_protocol_options": {"idle_timeout": seconds(30)},
    }
    endpoint = {
        "address": {"socket_address": {"address": servers, "port_value": port}},
        "health_check_config": {"port_value": HTTP_PORT},
    }
    budget = {
        "budget_percent": {"value": RETRIES_PERCENT},
        "min_retry_concurrency": RETRIES_ALWAYS,
    }
    # Each door says by itself how much it takes.
    unbounded = 1 << 20
    thresholds = {
        "max_connections": unbounded,
        "max_pending_requests": unbounded,
        "max_requests": unbounded,
        "retry_budget": budget,
    }
    tls = {"transport_socket": trusting(exposure.certificate)} if exposure.certificate else {}
    return {
        "name": name,
        "cluster_type": extension(
            "envoy.clusters.dns",
            "clusters.dns.v3.DnsCluster",
            dns_refresh_rate=seconds(DNS_S),
            dns_lookup_family="V4_ONLY",
        ),
        "connect_timeout": seconds(2),
        "load_balancing_policy": least_requests(),
        # Rather no answer than one of a server that is not ready.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": seconds(CHECK_S),
                "interval": seconds(CHECK_S),
                "no_traffic_interval": seconds(CHECK_S),
                "unhealthy_threshold": CHECKS_FAILED,
                "healthy_threshold": 1,
                "http_health_check": {
                    "host": "localhost",
                    "path": "/v2/health/ready",
                    "codec_client_type": "HTTP2",
                },
            }
        ],
        # Not for what a server answers: a busy one is not a bad one, and a bad one is not ready.
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": REFUSED,
            "enforcing_consecutive_5xx": 0,
            "enforcing_consecutive_gateway_failure": 0,
            "enforcing_success_rate": 0,
            "enforcing_local_origin_success_rate": 0,
            "base_ejection_time": seconds(EJECTED_S),
            "max_ejection_percent": 50,
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
        "circuit_breakers": {"thresholds": [thresholds]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
        **tls,
    }


def least_requests() -> Config:
    """Of two at random the one with fewer requests; or the one that the request names."""
    least = policy("least_request", "least_request.v3.LeastRequest")
    return {
        "policies": [
            policy(
                "override_host",
                "override_host.v3.OverrideHost",
                override_host_sources=[{"header": SERVER_HEADER}],
                fallback_policy={"policies": [least]},
            )
        ]
    }


def policy(name: str, kind: str, **options: object) -> Config:
    folder = "load_balancing_policies"
    named = extension(f"envoy.{folder}.{name}", f"{folder}.{kind}", **options)
    return {"typed_extension_config": named}


def trusting(certificate: Path) -> Config:
    """The servers show the same certificate, and nothing but this very one is trusted, under
    whatever name."""
    shown, end, _ = certificate.read_text().partition(PEM_END)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown + end)).hexdigest()
    return extension(
        "envoy.transport_sockets.tls",
        "transport_sockets.tls.v3.UpstreamTlsContext",
        common_tls_context={
            "alpn_protocols": ["h2"],
            "validation_context": {"verify_certificate_hash": [digest]},
        },
    )
