"""What the cluster says of a pod. Pure functions on its objects."""

from extensions.kubernetes.kubectl import Object
from scripts.stacks.many_servers import Task

NAME = "app.kubernetes.io/name"
# The pods that the Service asks; and those of a canary too, which only they ask.
SERVICE, CANARY = "triton-bundle", "triton-bundle-canary"
SELECTOR, EVERY = f"{NAME}={SERVICE}", f"{NAME} in ({SERVICE}, {CANARY})"
FINGERPRINT = "triton-bundle/fingerprint"
# A pod that waits for one of these does not come by itself.
HOPELESS = (
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError"),
)
MOST_RESTARTS = 2


def read_task(pod: Object) -> Task:
    about, status = pod["metadata"], pod["status"]
    ready = is_ready(pod)
    return Task(
        about["uid"],
        about["name"],
        pod["spec"].get("nodeName", ""),
        "running" if ready else "ending" if is_ending(pod) else status["phase"].lower(),
        about.get("annotations", {}).get(FINGERPRINT, ""),
        "" if ready else explain(pod),
        about["name"],
        ready,
        find_beside(status.get("podIP", "")),
    )


def find_beside(address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{host}:8001" if address else ""


def is_ending(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_over(pod: Object) -> bool:
    """Its containers have ended, and none starts again: it was evicted, say, and stays listed."""
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def is_ready(pod: Object) -> bool:
    """Whether a Service sends it requests."""
    return not is_ending(pod) and any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in pod["status"].get("conditions", ())
    )


def explain(pod: Object) -> str:
    """Why it does not run, as far as the cluster knows."""
    if is_over(pod):
        about = pod["status"]
        return f"{about.get('reason', '')}: {about.get('message', '')}".strip(": ")
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") in (*HOPELESS, "CrashLoopBackOff"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each.get("message", each.get("reason", "")))
    return ""


def is_hopeless(pod: Object) -> bool:
    """It has ended again and again, or nothing that it waits for will come. One that is over has
    been replaced, perhaps weeks ago."""
    return not is_over(pod) and any(
        status.get("state", {}).get("waiting", {}).get("reason") in HOPELESS
        or (status.get("restartCount", 0) >= MOST_RESTARTS and not status.get("ready"))
        for status in _containers(pod)
    )


def _containers(pod: Object) -> list[Object]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
