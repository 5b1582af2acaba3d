"""Where perf_analyzer runs: on this machine or, with the gpu flavour, in a container of NVIDIA's
SDK image.

    run, addresses_there = open_sdk(server)
    run(["perf_analyzer", "-u", "localhost:8000", "-f", str(folder / "load.csv")], folder, None)
"""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bundle_serving.address import Address
from scripts.base.paths import VENV
from scripts.stacks.state import State

# A program, a folder that it may read and write in, and how long it may take -> its output.
Run = Callable[[list[str], Path, float | None], subprocess.CompletedProcess[str]]


def run_here(
    program: list[str], folder: Path, timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """On this machine, with the project's environment."""
    path = f"{VENV / 'bin'}:{os.environ.get('PATH', '')}"
    environment = os.environ | {"PATH": path}
    return subprocess.run(
        program,
        env=environment,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=timeout,
    )


def open_sdk(server: State) -> tuple[Run, Mapping[Address, Address]]:
    """A container where the server's ports are held, and its addresses there. Where none runs, on
    this machine's network, on which `make tune` has its own."""
    # The code that talks to Docker takes a third of a second to import.
    from scripts.stacks.gpu import GpuStack

    stack = GpuStack(server.settings_at_start)
    service, there = "sdk-outside", dict[Address, Address]()
    if stack.alive("ports"):
        service = "sdk"
        for address, port in ((server.http, 8000), (server.grpc, 8001)):
            there[address] = replace(address, host="127.0.0.1", port=port)
    stack.images.build("sdk", announced=not stack.images.has("sdk"))

    def run(
        program: list[str], folder: Path, timeout: float | None
    ) -> subprocess.CompletedProcess[str]:
        """As on the host: the folder and the certificate are mounted under the same names, and the
        container runs as the calling user."""
        # Without capabilities, even root can write only to its own files.
        os.chown(folder, os.getuid(), os.getgid())
        options = ["-T", "--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{folder}:{folder}"]
        if read := server.http.certificate:
            options += ["--volume", f"{read}:{read}:ro"]
        name = f"{stack.project}-sdk-{os.getpid()}"  # others may run at the same time
        words = ("run", "--rm", "--no-deps", "--name", name, *options, service, *program)
        try:
            return stack.compose.run(*words, quiet=True, timeout=timeout)
        finally:
            stack.compose.remove(service, name)  # Ctrl-C or the time limit ends only Compose

    return run, there
