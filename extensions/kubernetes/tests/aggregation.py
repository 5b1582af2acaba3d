"""A part of the API that a server on this machine answers, and the cluster's own asks."""

from collections.abc import Iterator
from contextlib import contextmanager

from extensions.kubernetes.tests.cluster import Cluster

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: kube-system}}
spec: {{ports: [{{port: 443, targetPort: {port}}}]}}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: {name}, namespace: kube-system}}
subsets: [{{addresses: [{{ip: {host}}}], ports: [{{port: {port}}}]}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {version}.{group}}}
spec:
  group: {group}
  version: {version}
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {{name: {name}, namespace: kube-system}}
"""


@contextmanager
def answering(cluster: Cluster, part: str, host: str, port: int) -> Iterator[None]:
    """`part`: its group and version, "metrics.k8s.io/v1beta1"."""
    group, _, version = part.partition("/")
    about = {"name": group.replace(".", "-"), "host": host, "port": port}
    objects = OBJECTS.format(group=group, version=version, **about)
    try:
        cluster.kubectl("apply", "--filename=-", given=objects)
        yield
    finally:
        # With a Service its endpoints go too.
        cluster.kubectl("delete", "--ignore-not-found", "--filename=-", given=objects)
