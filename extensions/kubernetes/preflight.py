"""What a namespace must allow, and a cluster have room for, before anything is applied."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal

from extensions.kubernetes.applied import find_deployment
from extensions.kubernetes.kubectl import Kubectl, Object, Refused, read_all
from scripts.base.errors import UserError
from scripts.stacks.many_servers import Room

# By API group and kind, what is done.
CHANGED = ("get", "list", "create", "patch", "delete")
RIGHTS = {
    ("apps", "deployments"): CHANGED,
    ("apps", "deployments/scale"): ("get", "patch"),
    ("autoscaling", "horizontalpodautoscalers"): CHANGED,
    ("policy", "poddisruptionbudgets"): CHANGED,
    ("networking.k8s.io", "networkpolicies"): CHANGED,
    ("", "services"): CHANGED,
    ("", "configmaps"): CHANGED,
    ("", "secrets"): ("get", "create", "patch", "delete"),
    ("", "pods"): ("get", "list", "watch", "create", "delete"),
    ("", "pods/log"): ("get",),
    ("", "pods/portforward"): ("create",),
}
OF_A_CLAIM = {
    ("", "persistentvolumeclaims"): ("get", "list", "create", "patch"),
    ("", "pods/exec"): ("create",),
}
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CLAIM = "triton-bundle-models"
ACCOUNT = "serviceAccountName"
OF_A_ROLE = {("", "serviceaccounts"): CHANGED}

BINARY, DECIMAL = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), ("k", "M", "G", "T", "P", "E")
UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1024) ** power for power, unit in enumerate(BINARY, 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(DECIMAL, 1)},
}


def require_rights(kubectl: Kubectl, with_claim: bool, with_role: bool) -> None:
    """All in one request: each takes a third of a second."""
    asked = [
        (verb, group, kind)
        for rights in (RIGHTS, OF_A_CLAIM if with_claim else {}, OF_A_ROLE if with_role else {})
        for (group, kind), verbs in rights.items()
        for verb in verbs
    ]
    reviews = [_review(kubectl.namespace, *each) for each in asked]
    listed = {"apiVersion": "v1", "kind": "List", "items": reviews}
    said = kubectl.run("create", "--filename=-", "--output=json", given=json.dumps(listed))
    answers = [each for found in read_all(said)[0] for each in found.get("items", [found])]
    missing = [
        f"{verb} {kind}"
        for (verb, _, kind), answer in zip(asked, answers, strict=True)
        if not answer["status"].get("allowed")
    ]
    if missing:
        raise UserError(
            f"in the namespace {kubectl.namespace} you may not {', '.join(missing)}",
            "ask who runs the cluster for these rights, or use another namespace: NAMESPACE=",
        )


def _review(namespace: str, verb: str, group: str, kind: str) -> Object:
    resource, _, sub = kind.partition("/")
    about = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": about | ({"subresource": sub} if sub else {})},
    }


def require_namespace(kubectl: Kubectl) -> None:
    try:
        if kubectl.get("namespace", kubectl.namespace):
            return
    except Refused as fault:
        if "orbidden" in fault.cause:  # who may not ask has one all the same
            return
        raise UserError(
            fault.cause, "set CONTEXT to a cluster that answers (kubectl config get-contexts)"
        ) from None
    raise UserError(
        f"the cluster has no namespace {kubectl.namespace}",
        f"kubectl create namespace {kubectl.namespace}, or set NAMESPACE",
    )


def require_storage(kubectl: Kubectl) -> None:
    """For the claim, which would wait for ever."""
    if kubectl.get("persistentvolumeclaim", CLAIM):
        return
    try:
        classes, volumes = (kubectl.list(each) for each in ("storageclass", "persistentvolume"))
    except Refused:  # who may not see them
        return
    if not any(
        each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true" for each in classes
    ) and not any(_is_for_claim(each, kubectl.namespace) for each in volumes):
        raise UserError(
            f"the claim {CLAIM} gets no volume: the cluster has no default storage class",
            "make that claim (ReadWriteMany) yourself, or keep models on S3: REPOSITORY=s3://…",
        )


def _is_for_claim(volume: Object, namespace: str) -> bool:
    wanted = volume["spec"].get("claimRef")
    if wanted:
        return bool((wanted.get("namespace"), wanted.get("name")) == (namespace, CLAIM))
    return bool(volume["status"].get("phase") == "Available")


def require_accepted(kubectl: Kubectl, objects: list[Object]) -> None:
    """By the cluster's own rules, of a pod too: of a Deployment whose pods they refuse, none says
    so."""
    kubectl.apply(objects, "--dry-run=server")
    template = find_deployment(objects)["spec"]["template"]
    about = {"generateName": "triton-bundle-look-", **template["metadata"]}
    # Its account comes with it.
    spec = {key: value for key, value in template["spec"].items() if key != ACCOUNT}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
    try:
        kubectl.run("create", "--dry-run=server", "--filename=-", given=json.dumps(pod))
    except Refused as fault:
        raise UserError(
            f"the namespace {kubectl.namespace} takes no such pod: {fault.cause}",
            "use another one (NAMESPACE=); pods keep to the restricted Pod Security Standard",
        ) from None


def find_room(kubectl: Kubectl, asked: Mapping[str, str]) -> Room | None:
    """For pods that ask for so much each; None where nobody may see the nodes."""
    try:
        nodes = kubectl.list("nodes")
    except Refused:
        return None
    each = {what: parse_quantity(text) for what, text in {**asked, "pods": "1"}.items()}
    has = (node["status"]["allocatable"] for node in nodes)
    return Room(
        "cluster",
        [{what: parse_quantity(one.get(what, "")) for what in each} for one in has],
        each,
        f"such pods ({', '.join(f'{what} {amount}' for what, amount in asked.items())} each)",
        "CORES or MEMORY (make cluster-up)",
    )


def parse_quantity(text: str) -> Decimal:
    """Of what Kubernetes writes: "500m" of a processor, "16Gi". Nothing of what it would refuse."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)([A-Za-z]*)", text)
    return Decimal(found[1]) * UNITS.get(found[2], 0) if found else Decimal(0)
