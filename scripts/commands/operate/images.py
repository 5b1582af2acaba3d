"""Builds the images of the CPU flavour, and pushes them.

    make images
    make images PUSH=registry.example/team
    make images PUSH=registry.example/team TAG=tried

They are pushed as triton-bundle-server, -layout and -export, tagged with TAG or the bundle's
version; the last only where PyTorch exports the network. cosign signs them if it is installed.
"""

from bundle_client import __version__
from scripts.artefacts.step import Place
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.server import engines
from scripts.server.served import serving
from scripts.server.wanted_settings import fill_from_version
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.stacks.docker_engine import why_not_docker
from scripts.stacks.images import RELEASED, name_image, require_registry


def main() -> None:
    if obstacle := why_not_docker():
        raise UserError("images need Docker", obstacle)
    options, settings, network = arguments.load(), Settings.load(), pipelines.main()
    registry, tag = options.push, options.tag or __version__
    if registry:
        require_registry(registry)
    stack = DockerStack(settings)
    settings = fill_from_version(settings, network, serving(network))
    services = [*RELEASED]
    if engines.needs_pytorch(settings, network):
        with lock.one_at_a_time():  # what it fetches for it, another command may be fetching
            stack.prepare_place(Place.EXPORT)
    else:
        console.note("no image to export with: PyTorch has no part in this network")
        services.remove(stack.services[Place.EXPORT])
    for service in services:
        stack.images.build(service)
        if registry:
            pushed = stack.images.push(service, name_image(registry, service, tag))
            console.note(f"pushed: {pushed}")
