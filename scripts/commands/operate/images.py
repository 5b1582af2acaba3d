"""Builds the images of the CPU flavour, and pushes them.

    make images
    make images PUSH=registry.example/team

They are pushed as triton-bundle-export, -layout and -server, tagged with the bundle's version;
cosign signs them if it is installed.
"""

from __future__ import annotations

from bundle_client import __version__
from scripts.artefacts.step import Place
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack, why_not_docker


def main() -> int:
    if obstacle := why_not_docker():
        raise UserError("images need Docker", obstacle)
    registry = arguments.load().push.rstrip("/")
    stack = DockerStack(Settings.load())
    stack.prepare_place(Place.EXPORT)
    for service in ("export", "layout", "server"):
        stack.build(service)
        if registry:
            pushed = stack.push(service, f"{registry}/triton-bundle-{service}:{__version__}")
            console.note(f"pushed: {pushed}")
    return 0
