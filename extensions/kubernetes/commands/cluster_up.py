"""Starts servers in pods of a Kubernetes cluster, or replaces those that run.

    make cluster-up REGISTRY=registry.example/team NAMESPACE=team REPLICAS=3
    make cluster-up REGISTRY=registry.example/team REPOSITORY=s3://bucket/models/live

Exports, checks and lays out what has changed, as make up does. `make images PUSH=…` has pushed the
image. This machine reaches the pods on its own HTTP_PORT and GRPC_PORT.
"""

from bundle_serving.process.exposure import is_loopback
from extensions.kubernetes import settings as own
from extensions.kubernetes import where
from extensions.kubernetes.kubectl import find_context
from extensions.kubernetes.kustomization import FLAVOUR
from extensions.kubernetes.pods import SERVICE
from scripts.server import own_main
from scripts.settings.settings import Settings


def main() -> None:
    settings = Settings.load().replace_with(FLAVOUR=FLAVOUR)
    hosts = {*settings.allowed_hosts, SERVICE}
    settings = settings.replace_with(ALLOWED_HOSTS=",".join(sorted(hosts)))
    if is_loopback(settings.bind):  # others reach a pod, whatever BIND says of this machine
        settings = settings.replace_with(BIND="0.0.0.0")
    settings = where.settle(settings)
    if not own.context.value_in(settings):
        settings = settings.replace_with(CONTEXT=find_context())
    own_main.bring_up(settings, "cluster-up")
