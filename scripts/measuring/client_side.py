"""Where perf_analyzer runs: on this machine or, with the gpu flavour, in a container of NVIDIA's
SDK image.

    side = client_side.side_of(server)
    side.run(["perf_analyzer", "-u", str(side.http), "-f", str(folder / "load.csv")], folder)
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.base.paths import VENV
from scripts.stacks.state import State

if TYPE_CHECKING:
    from scripts.stacks.gpu import GpuStack

Done = subprocess.CompletedProcess[str]


class Host:
    """This machine, with the project's environment."""

    def __init__(self, server: State) -> None:
        self.http, self.grpc = server.http, server.grpc

    def run(
        self,
        program: list[str],
        folder: Path | None = None,
        timeout: float | None = None,
    ) -> Done:
        """With its output. It may read and write in the folder."""
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


class Sdk:
    """A container where the server's ports are held. Where none runs, on this machine's network, on
    which `make tune` has its own."""

    def __init__(self, server: State, stack: GpuStack) -> None:
        self.http, self.grpc, self._service = server.http, server.grpc, "sdk-outside"
        if stack.alive("ports"):
            self.http = replace(server.http, host="127.0.0.1", port=8000)
            self.grpc = replace(server.grpc, host="127.0.0.1", port=8001)
            self._service = "sdk"
        self._stack = stack
        stack.prepare_sdk()

    def run(
        self,
        program: list[str],
        folder: Path | None = None,
        timeout: float | None = None,
    ) -> Done:
        """As on the host: the folder and the certificate are mounted under the same names, and the
        container runs as the calling user."""
        options = ["-T", "--user", f"{os.getuid()}:{os.getgid()}"]
        if folder:  # without capabilities, even root can write only to its own files
            os.chown(folder, os.getuid(), os.getgid())
            options += ["--volume", f"{folder}:{folder}"]
        if read := self.http.certificate:
            options += ["--volume", f"{read}:{read}:ro"]
        return self._stack.run_sdk(self._service, options, program, timeout)


Side = Host | Sdk


def side_of(server: State) -> Side:
    if server.flavour != "gpu":
        return Host(server)
    # The code that talks to Docker takes a third of a second to import.
    from scripts.stacks.gpu import GpuStack

    return Sdk(server, GpuStack(server.settings_at_start))
