"""Unloads a model that no picture needs.

make unload MODEL=another
"""

from __future__ import annotations

import sys
import time

from scripts.base import console
from scripts.base.errors import UserError, guarded
from scripts.server import extra, loading, model_control


def main() -> int:
    server = model_control.server()
    name = model_control.named(server)
    if name in model_control.pipeline(server):
        raise UserError(
            f"without {name} no picture is answered",
            "change it and make load it, or make down to stop serving",
        )
    extra.forget(name)
    if not model_control.in_memory(server, name):
        console.note(f"{name} is not loaded")
        return 0
    with console.waiting(f"unloading {name}") as waiting:
        loading.unload(server.admin, name, model_control.LONGEST_S)
        while model_control.in_memory(server, name):
            if waiting.seconds > model_control.LONGEST_S:
                raise UserError(f"{name} still answers requests", "make models shows when it ends")
            time.sleep(0.2)
    console.note(f"unloaded: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
