"""A newcomer's first look: a network, a server, a picture, an answer, on whatever machine.

    make demo

Takes torchvision's weights where they can be had; where not, untrained ones, and says so.
"""

from __future__ import annotations

import os
import sys

from scripts.base import console
from scripts.base.errors import AlreadyTold, NoWeights, guarded
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.server import ask
from scripts.server.up import bring_up
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks.state import State
from scripts.steps import picture

PICTURE = ROOT / "build" / "mug.jpg"


def main() -> int:
    server = _server(settings.load())
    picture.main(["--out", str(PICTURE)])
    shown = PICTURE.relative_to(ROOT)
    console.note(f"a picture of a mug, drawn for you: {shown}")
    code = pipelines.first().recipe.ask(ask.of(server), [str(shown)], os.environ)
    console.out.print(
        "\nNow yours:      make classify IMG=photo.jpg\n"
        "What is up:     make status\n"
        "Stop it:        make down\n"
        "All commands:   make",
        markup=False,
    )
    return code


def _server(wished: Settings) -> State:
    try:
        return bring_up(wished)
    except AlreadyTold as fault:
        if fault.exit_code != NoWeights.exit_code or "WEIGHTS" in wished.given:
            raise
    console.note("no trained weights here: going on with untrained ones, whose labels mean nothing")
    return bring_up(wished.replaced(WEIGHTS="random"))


if __name__ == "__main__":
    sys.exit(guarded(main))
