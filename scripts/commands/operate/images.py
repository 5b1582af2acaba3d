"""Builds the images of the CPU flavour, and pushes them.

    make images
    make images PUSH=registry.example/team

They are pushed as triton-bundle-server, -layout and -export, tagged with the bundle's version; the
last only where PyTorch exports the network. cosign signs them if it is installed.
"""

from __future__ import annotations

from scripts.artefacts.step import Place
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.server import engines, up
from scripts.server.served import serving
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks import registries
from scripts.stacks.containers import DockerStack
from scripts.stacks.engine import why_not_docker
from scripts.stacks.images import RELEASED, name_released


def main() -> int:
    if obstacle := why_not_docker():
        raise UserError("images need Docker", obstacle)
    registry, settings, network = arguments.load().push, Settings.load(), pipelines.main()
    if registry:
        registries.require(registry)
    stack = DockerStack(settings)
    settings = up.fill_from_version(settings, network, serving(network))
    services = [*RELEASED]
    if engines.needs_pytorch(settings, network):
        stack.prepare_place(Place.EXPORT)
    else:
        console.note("no image to export with: PyTorch has no part in this network")
        services.remove(stack.services[Place.EXPORT])
    for service in services:
        stack.images.build(service)
        if registry:
            pushed = stack.images.push(service, name_released(registry, service))
            console.note(f"pushed: {pushed}")
    return 0
