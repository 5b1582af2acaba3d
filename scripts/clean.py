"""Stops the server and removes everything that was made here: exports, images, the environment.

make clean
"""

from __future__ import annotations

import shutil
import sys

from scripts.bootstrap import ROOT, VENV
from scripts.down import stop_server
from scripts.errors import guarded
from scripts.host import console, docker_stack, flavour, lock, settings


def main() -> int:
    with lock.one_at_a_time():
        stop_server()
        for name in flavour.possible():
            stack = flavour.stack(name, settings.load())
            if isinstance(stack, docker_stack.DockerStack):
                beside = ("--profile", "s3", "--profile", "embeddings")
                stack.compose(*beside, "down", "--volumes", quiet=True)
                stack.remove_images()
        for wheel in docker_stack.WHEELS.glob("*.whl"):
            wheel.unlink()
        shutil.rmtree(ROOT / "build", ignore_errors=True)
    console.note("clean: images, exports and environment are gone")
    shutil.rmtree(VENV, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
