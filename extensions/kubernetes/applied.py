"""The objects that a cluster is given: what is read of their Deployment, and changed for a rollout,
a canary, a copy of the models. Pure functions on objects."""

import copy
from collections.abc import Sequence

from extensions.kubernetes.kubectl import Object
from extensions.kubernetes.pods import CANARY, FINGERPRINT, NAME, SERVICE

# So long a pod must have been ready before an old one ends for it: nothing is replaced that nobody
# judges, and after it the next command has gone on or back.
HELD_S = 30 * 24 * 3600
# Without an end, which for a Deployment is this.
NO_DEADLINE = 2**31 - 1
# Copies of what is live on a claim.
FOLDER = "pods"
# What the pods read, by names that tell the contents.
READ = "ConfigMap", "Secret"
# By which the other pods reach it, who reach nothing else.
ASKED = f"{CANARY}-asked"


def find_deployment(objects: list[Object]) -> Object:
    (found,) = (each for each in objects if each["kind"] == "Deployment")
    return found


def set_strategy(objects: list[Object], surge: int, unavailable: int, **more: int) -> list[Object]:
    changed = copy.deepcopy(objects)
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    find_deployment(changed)["spec"] |= {"strategy": {"rollingUpdate": rolling}, **more}
    return changed


def hold(objects: list[Object], surge: int, unavailable: int) -> list[Object]:
    """New pods answer, and never count as available: old ones end only as `unavailable` says."""
    held = {"minReadySeconds": HELD_S, "progressDeadlineSeconds": NO_DEADLINE}
    return set_strategy(objects, surge, unavailable, **held)


def scale(objects: list[Object], replicas: int) -> list[Object]:
    """The autoscaler must not know better. Where there are no pods, it waits until there are."""
    changed, least = copy.deepcopy(objects), max(1, replicas)
    for each in changed:
        if each["kind"] == "HorizontalPodAutoscaler":
            each["spec"] |= {"minReplicas": least, "maxReplicas": least}
    return changed


def is_settled(deployment: Object, fingerprint: str) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    return (
        read_fingerprint(deployment) == fingerprint
        and status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        and all(
            status.get(name, 0) == wanted
            for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        )
    )


def mark(objects: list[Object], fingerprint: str) -> None:
    template = find_deployment(objects)["spec"]["template"]
    template["metadata"].setdefault("annotations", {})[FINGERPRINT] = fingerprint


def read_fingerprint(deployment: Object) -> str:
    annotations = deployment["spec"]["template"]["metadata"].get("annotations", {})
    return str(annotations.get(FINGERPRINT, ""))


def mount(objects: list[Object], name: str) -> None:
    """This copy of what is live."""
    spec = find_deployment(objects)["spec"]["template"]["spec"]
    (mounted,) = (m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models")
    mounted["subPath"] = f"{FOLDER}/{name}"
    (waits,) = spec["initContainers"]
    waits["command"][-1] = waits["command"][-1].replace("/claim/live/", f"/claim/{FOLDER}/{name}/")


def read_mounted(objects: list[Object]) -> str:
    """Which copy it reads; empty where there is none."""
    mounts = _read_container(objects).get("volumeMounts", ())
    paths = (each.get("subPath", "") for each in mounts if each["name"] == "models")
    return next(paths, "").removeprefix(f"{FOLDER}/")


def read_image(objects: list[Object]) -> str:
    return str(_read_container(objects).get("image", ""))


def _read_container(objects: list[Object]) -> Object:
    """Empty where nothing was given."""
    container: Object = (
        find_deployment(objects)["spec"]["template"]["spec"]["containers"][0] if objects else {}
    )
    return container


def make_canary(objects: Sequence[Object], count: int) -> list[Object]:
    """Of what the new version's pods would be."""
    made = [each for each in objects if each["kind"] in READ]
    for each in copy.deepcopy([*objects]):
        if each["kind"] == "Deployment":
            spec = each["spec"]
            spec["replicas"] = count
            named = [spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]]
            made.append(each)
        elif each["kind"] == "NetworkPolicy":
            named = [each["spec"]["podSelector"]["matchLabels"]]
            made += [each, _let_be_asked(each)]
        else:
            continue
        each["metadata"]["name"] = CANARY
        for labels in named:
            labels[NAME] = CANARY
    return made


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
