"""Builds the images of the CPU flavour, and pushes them.

    make images
    make images PUSH=registry.example/team

They are pushed as triton-bundle-export, -layout and -server, tagged with the bundle's version;
cosign signs them if it is installed.
"""

from __future__ import annotations

from scripts.artefacts.step import Place
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks.containers import RELEASED, DockerStack, name_released, why_not_docker


def main() -> int:
    if obstacle := why_not_docker():
        raise UserError("images need Docker", obstacle)
    registry = arguments.load().push
    stack = DockerStack(Settings.load())
    stack.prepare_place(Place.EXPORT)
    for service in RELEASED:
        stack.build(service)
        if registry:
            pushed = stack.push(service, name_released(registry, service))
            console.note(f"pushed: {pushed}")
    return 0
