"""A canary on a cluster: pods with the new version that no Service sends requests, but only the
other pods, of their clients' requests. Pure functions on objects."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from extensions.kubernetes.kubectl import Object
from extensions.kubernetes.pods import CANARY, NAME, SERVICE

# What the pods read, by names that tell the contents.
READ = "ConfigMap", "Secret"
# By which the other pods reach it, who reach nothing else.
ASKED = f"{CANARY}-asked"


def make(objects: Sequence[Object], count: int) -> list[Object]:
    """Of what the new version's pods would be."""
    made = [each for each in objects if each["kind"] in READ]
    for each in objects:
        if each["kind"] == "Deployment":
            made.append(_rename_deployment(each, count))
        elif each["kind"] == "NetworkPolicy":
            made += [_rename_policy(each), _let_be_asked(each)]
    return made


def _rename_deployment(deployment: Object, count: int) -> Object:
    renamed = copy.deepcopy(deployment)
    renamed["metadata"]["name"] = CANARY
    spec = renamed["spec"]
    spec["replicas"] = count
    spec["selector"]["matchLabels"][NAME] = CANARY
    spec["template"]["metadata"]["labels"][NAME] = CANARY
    return renamed


def _rename_policy(policy: Object) -> Object:
    renamed = copy.deepcopy(policy)
    renamed["metadata"]["name"] = CANARY
    renamed["spec"]["podSelector"]["matchLabels"][NAME] = CANARY
    return renamed


def _let_be_asked(policy: Object) -> Object:
    allowed = {
        "to": [{"podSelector": {"matchLabels": {NAME: CANARY}}}],
        "ports": [{"port": "grpc"}],
    }
    return {
        **{name: policy[name] for name in ("apiVersion", "kind")},
        "metadata": {"name": ASKED},
        "spec": {
            "podSelector": {"matchLabels": {NAME: SERVICE}},
            "policyTypes": ["Egress"],
            "egress": [allowed],
        },
    }
