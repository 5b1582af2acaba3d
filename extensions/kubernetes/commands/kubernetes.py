"""Writes what Kubernetes needs to serve with these settings.

    make kubernetes PUSH=registry.example/team
    make kubernetes PUSH=registry.example/team REPOSITORY=s3://bucket/models/live

`make images PUSH=…` pushes the image that it names.
"""

from extensions.kubernetes import kustomization
from extensions.kubernetes import settings as own
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.repository import place
from scripts.settings import arguments
from scripts.settings.settings import Settings


def main() -> None:
    registry = arguments.load().push.rstrip("/")
    if not registry:
        raise UserError(
            "no registry given, from which the cluster takes the image",
            "make kubernetes PUSH=registry.example/team, and the same with make images",
        )
    with lock.one_at_a_time():
        settings = Settings.load()
        folder = kustomization.write(settings, registry).relative_to(ROOT)
    console.note(f"written, with keys in it: {folder}")
    # The files name no namespace.
    there = "".join(
        f" --{each.name.lower()}={settings[each.name]}"
        for each in (own.namespace, own.context)
        if each.name in settings.given
    )
    if settings.flavour == "gpu":  # without it, no pod is made
        console.note(f"must be there before: kubectl{there} get runtimeclass nvidia")
    kubectl = f"kubectl{there} apply --kustomize"
    console.note(f"next: {kubectl} {folder} (extensions/kubernetes/README.md)")
    if (ROOT / folder / "job").is_dir():
        console.note(f"fills the claim: {kubectl} {folder}/job")
    elif not place.find(settings):
        console.note(
            "no job builds what lies here: copy build/live into the claim, as live; "
            "or copy the file there, and name it: FROM=build/birds.onnx"
        )
