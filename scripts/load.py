"""Loads a model of the repository, or what has changed of one that is loaded.

    make load MODEL=resnet50_onnx

The version that was served goes on until the new one is ready, and stays where that fails to load.
"""

from __future__ import annotations

import sys

from scripts.errors import guarded
from scripts.host import console, model_control, triton_api


def main() -> int:
    server = model_control.server()
    name = model_control.named(server)
    with console.waiting(f"loading {name}"):
        triton_api.post(
            server.http, f"/repository/models/{name}/load", timeout=model_control.LONGEST_S
        )
    for model in model_control.in_memory(server, name):
        if model.state == "READY":
            console.note(f"loaded: {name}, version {model.version}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
