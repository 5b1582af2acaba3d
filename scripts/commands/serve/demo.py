"""A first look on any machine: a network, a server, a picture, an answer.

    make demo

Uses the network that is live or that .env names, or torchvision's weights if they are available.
Otherwise a small network that comes with the project and knows drawings of eight things; and says
so.
"""

import os

from scripts.artefacts import picture
from scripts.artefacts.drawn.things import NAMES
from scripts.base import console
from scripts.recipes import pipelines
from scripts.server import ask, own_main
from scripts.server.served import serving
from scripts.server.torchvision_weights import why_unavailable
from scripts.settings.choices import DRAWN
from scripts.settings.settings import Settings


def main() -> int:
    settings = Settings.load()
    reason = None if _is_settled(settings) else why_unavailable()
    if reason:
        console.note(f"torchvision's weights are not available ({reason})")
        console.note(f"instead, a small network that knows drawings: {', '.join(NAMES)}")
        settings = settings.replace_with(ARCH=DRAWN, WEIGHTS="default")
    server = own_main.bring_up(settings, "demo")
    shown = picture.write_for_users()
    console.note(f"drew a picture of a mug: {shown}")
    code = pipelines.main().recipe.ask(ask.server_of(server), [str(shown)], os.environ)
    if settings.arch == DRAWN:
        console.note(
            f"this network recognises {len(NAMES)} drawn things, not photos; for ImageNet's 1000 "
            "classes: make up ARCH=resnet50 WEIGHTS=resnet50.pth (or online, without WEIGHTS)"
        )
    http, grpc = server.shown
    console.say(
        f"\nIt runs on:     {http.url} (gRPC: {grpc})\n"
        "Your picture:   make classify IMG=photo.jpg\n"
        "Status:         make status\n"
        "Stop it:        make down\n"
        "All commands:   make help"
    )
    return code


def _is_settled(settings: Settings) -> bool:
    """Whether a network is chosen, or one is live already."""
    is_chosen = Settings.weights.name in settings.given or own_main.list_given(os.environ)
    return bool(is_chosen) or serving(pipelines.main()) is not None
