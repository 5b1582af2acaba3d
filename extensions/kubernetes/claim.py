"""Copies of what is live on the claim of a namespace, each in a folder that never changes: a pod
that is started again reads what it read before. They get there through a pod of their own."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import yaml

from extensions.kubernetes import pods
from extensions.kubernetes.applied import FOLDER
from extensions.kubernetes.kubectl import Kubectl, Object
from extensions.kubernetes.kustomization import SOURCE
from extensions.kubernetes.preflight import CLAIM
from scripts.base import console
from scripts.base.errors import UserError
from scripts.repository import live

VOLUME = SOURCE / "components" / "volume"
NAME = "triton-bundle-filler"
PUSH = "push it (make images PUSH=…), and check REGISTRY"
# Moved when it is whole.
TAKE = 'cd /models && mkdir -p "$1.new" && tar -x -C "$1.new" && mv "$1.new" "$1"'
LEAVE = """
mkdir -p /models/pods && cd /models/pods
for each in *; do case " $1 " in *" $each "*) ;; *) rm -rf "$each";; esac; done
ls
"""


def put(kubectl: Kubectl, image: str, name: str, other: str, limit: float) -> None:
    """What is live, as this one; of all others only that stays."""
    if not kubectl.get("persistentvolumeclaim", CLAIM):
        kubectl.apply([yaml.safe_load((VOLUME / "claim.yaml").read_text())])
    inside = ("exec", "--stdin", NAME, "--", "sh", "-c")
    with _running(kubectl, image, limit, "copying what is live onto the claim", with_claim=True):
        there = kubectl.run(*inside, LEAVE, "sh", f"{name} {other}").split()
        if name not in there:
            packed = subprocess.run(
                ["tar", "--create", "--mode=a+rX", f"--directory={live.REPOSITORY}", "."],
                capture_output=True,
                check=True,
            )
            kubectl.run(*inside, TAKE, "sh", f"{FOLDER}/{name}", given=packed.stdout)


@cache
def require_image(kubectl: Kubectl, image: str, limit: float) -> None:
    """Before anything is built here, or replaced by it."""
    with _running(kubectl, image, limit, "looking for the image in the cluster", with_claim=False):
        pass


@contextmanager
def _running(
    kubectl: Kubectl, image: str, limit: float, what: str, with_claim: bool
) -> Iterator[None]:
    filler: Object = yaml.safe_load((VOLUME / "filler.yaml").read_text())
    spec = filler["spec"]
    spec["containers"][0]["image"] = image
    if not with_claim:
        del spec["volumes"], spec["containers"][0]["volumeMounts"]
    kubectl.run("delete", "pod", NAME, "--ignore-not-found", "--now")
    kubectl.run("create", "--filename=-", given=json.dumps(filler))
    try:
        with console.waiting(what) as waiting:
            while not ((pod := kubectl.get("pod", NAME)) and pods.is_ready(pod)):
                if not pod:
                    raise UserError(f"somebody has removed the pod {NAME}", "run it again")
                why = pods.explain(pod)
                if pods.is_over(pod) or pods.is_hopeless(pod) or waiting.seconds > limit:
                    raise UserError(f"no pod comes up with the image {image}: {why}", PUSH)
                time.sleep(0.5)
            yield
    finally:
        kubectl.run("delete", "pod", NAME, "--ignore-not-found", "--now", "--wait=false")
