"""KEDA itself, on this machine beside the API server: what scales by the length of a queue or by
Prometheus, and what tells the cluster's autoscaler its figures.

    with keda.running(cluster, "10.219.0.254", folder):
        cluster.kubectl("apply", "--filename", "scaledobject.yaml")

TEST_KEDA names a folder with its programs, `keda` and `keda-adapter`, and its definitions, *.yaml.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from extensions.kubernetes.tests import aggregation
from extensions.kubernetes.tests.cluster import Cluster, Program
from extensions.kubernetes.tests.cluster import running as running_program
from tests.project import free_ports, run, wait_until

PLACE = os.environ.get("TEST_KEDA")
KUBECONFIGS = "authentication", "authorization", "lister"
SETTINGS = "WATCH_NAMESPACE=", "KEDA_CLUSTER_OBJECT_NAMESPACE=kube-system"
PART = "external.metrics.k8s.io/v1beta1"
# The API server of the tests shows KEDA no certificate when it passes a question on.
TRUSTED = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-external-metrics}
rules:
  - {apiGroups: [external.metrics.k8s.io], resources: ["*"], verbs: [get, list]}
  - {nonResourceURLs: ["/apis/external.metrics.k8s.io/*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-external-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-external-metrics}
subjects: [{kind: Group, name: "system:unauthenticated", apiGroup: rbac.authorization.k8s.io}]
"""


@contextmanager
def running(cluster: Cluster, host: str, folder: Path) -> Iterator[None]:
    if not PLACE:
        pytest.skip("no KEDA here (TEST_KEDA is not set)")
    folder.mkdir()
    _make_certificates(folder)
    cluster.kubectl("apply", "--server-side", "--filename", PLACE)
    cluster.kubectl("apply", "--filename=-", given=TRUSTED)
    internal, port, *others = free_ports(5)
    kubeconfig, certificates = f"--kubeconfig={cluster.folder}/kubeconfig", f"--cert-dir={folder}"
    operator = [
        *(f"{PLACE}/keda", kubeconfig, certificates, "--enable-prometheus-metrics=false"),
        f"--metrics-service-bind-address=127.0.0.1:{internal}",
        f"--health-probe-bind-address=127.0.0.1:{others[0]}",
    ]
    adapter = [
        *(f"{PLACE}/keda-adapter", kubeconfig, certificates),
        *(f"--bind-address={host}", f"--secure-port={port}", f"--port={others[1]}"),
        f"--metrics-service-address=localhost:{internal}",
        *(f"--{side}-kubeconfig={cluster.folder}/kubeconfig" for side in KUBECONFIGS),
        "--authentication-skip-lookup",
    ]
    with ExitStack() as stack:
        for command in operator, adapter:
            log = folder / f"{Path(command[0]).name}.log"
            words = ["env", *SETTINGS, *command]
            stack.enter_context(running_program(Program(words, log)))
        stack.enter_context(aggregation.answering(cluster, PART, host, port))
        wait_until(lambda: _answers(cluster), f"KEDA (logs: {folder})", 300)
        yield


def _answers(cluster: Cluster) -> bool:
    return cluster.try_kubectl("get", "--raw", f"/apis/{PART}").returncode == 0


def _make_certificates(folder: Path) -> None:
    """One, by which its programs know each other, and which they trust."""
    made = ("-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt", "-days", "2")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *name)
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())
