"""Where OpenTelemetry's spans are sent, and of how many requests: the standard's own variables."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

ENDPOINT, RATIO = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_SAMPLER_ARG"
SERVICE = "triton-bundle"
TRACEPARENT = "traceparent"
PORT = 4318
# Where the variable is not set.
USUAL_RATIO = 0.01


@dataclass(frozen=True)
class Collector:
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, endpoint: str) -> Collector:
        """A `ValueError` for what is no http://host:port."""
        url = urlsplit(endpoint)
        if url.scheme != "http" or not url.hostname or url.username or url.query or url.fragment:
            raise ValueError(f"{ENDPOINT}={endpoint} must be http://host:port")
        return cls(url.hostname, url.port or PORT, f"{url.path.rstrip('/')}/v1/traces")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def triton_options() -> list[str]:
    """Triton only hands the steps the `traceparent` that they report. Its own tracer reads one
    together with whatever follows in memory, and loses a tenth of all requests."""
    asked = os.environ.get(ENDPOINT)
    return [f"--grpc-header-forward-pattern=^{TRACEPARENT}$"] if asked else []


def traceparent(parameters: str) -> str:
    """Among a request's parameters, as the Python backend has them; empty if there is none."""
    if f'"{TRACEPARENT}"' not in parameters:
        return ""
    found = json.loads(parameters).get(TRACEPARENT)
    return found if isinstance(found, str) else ""
