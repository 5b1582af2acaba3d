"""A stand-in for metrics-server, which no package brings: each pod uses as much of the processor as
a test says. The API server asks it, and the autoscaler asks the API server.

    with metrics.reporting(cluster, "10.219.0.254", "served") as usage:
        usage.millicores = 900
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from extensions.kubernetes.tests import aggregation
from extensions.kubernetes.tests.cluster import Cluster
from tests.project import free_ports, run

VERSION = "metrics.k8s.io/v1beta1"
# The kinds that the API server is told of.
KINDS = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": VERSION,
    "resources": [{"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}],
}


@dataclass
class Usage:
    """Of each container."""

    millicores: int = 100


@contextmanager
def reporting(cluster: Cluster, host: str, namespace: str) -> Iterator[Usage]:
    usage = Usage()

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.partition("?")[0]
            if asked == f"/apis/{VERSION}":
                self._answer(KINDS)
            elif asked == f"/apis/{VERSION}/namespaces/{namespace}/pods":
                self._answer(_measure(cluster, namespace, usage))
            else:
                self.send_error(404)

        def _answer(self, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    (port,) = free_ports(1)
    with ThreadingHTTPServer((host, port), Asked) as server:
        server.socket = _make_context(cluster).wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with aggregation.answering(cluster, VERSION, host, port):
                yield usage
        finally:
            server.shutdown()
            thread.join()


def _measure(cluster: Cluster, namespace: str, usage: Usage) -> dict[str, Any]:
    found = cluster.kubectl("get", "pods", f"--namespace={namespace}", "--output=json")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    used = {"cpu": f"{usage.millicores}m", "memory": "500Mi"}
    items = [
        {
            "metadata": {key: pod["metadata"][key] for key in ("name", "namespace", "labels")},
            "timestamp": now,
            "window": "15s",
            "containers": [
                {"name": each["name"], "usage": used} for each in pod["spec"]["containers"]
            ],
        }
        for pod in json.loads(found)["items"]
    ]
    return {"kind": "PodMetricsList", "apiVersion": VERSION, "metadata": {}, "items": items}


def _make_context(cluster: Cluster) -> ssl.SSLContext:
    folder = cluster.folder
    made = ("-keyout", f"{folder}/metrics.key", "-out", f"{folder}/metrics.crt", "-days", "2")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, "-subj", "/CN=metrics")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "metrics.crt", folder / "metrics.key")
    return context
