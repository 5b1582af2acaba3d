"""Stops the server and removes everything that was made here: exports, images, the environment.

make clean
"""

from __future__ import annotations

import shutil
import sys

from scripts.base import console, lock
from scripts.base.errors import guarded
from scripts.base.paths import ROOT, VENV
from scripts.server.stop import stop_server
from scripts.settings import settings
from scripts.stacks import containers, flavour


def main() -> int:
    with lock.one_at_a_time():
        stop_server()
        for name in flavour.possible():
            stack = flavour.stack(name, settings.load())
            if isinstance(stack, containers.DockerStack):
                beside = ("--profile", "s3", "--profile", "embeddings")
                stack.compose(*beside, "down", "--volumes", quiet=True)
                stack.remove_images()
        for wheel in containers.WHEELS.glob("*.whl"):
            wheel.unlink()
        shutil.rmtree(ROOT / "build", ignore_errors=True)
    console.note("clean: images, exports and environment are gone")
    shutil.rmtree(VENV, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
