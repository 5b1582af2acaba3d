"""Where clients of the server run: on this machine or, with the gpu flavour, in NVIDIA's SDK
image.

    side = client_side.of(server)
    side.run(["perf_analyzer", "-u", str(side.http), "-f", str(folder / "load.csv")], writes=folder)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bundle_serving.address import Address
from scripts.base.errors import UserError
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
        program: Sequence[str],
        reads: Sequence[str] = (),
        writes: Path | None = None,
        quiet: bool = False,
        timeout: float | None = None,
        stdin: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Done:
        """Runs a program with access to these files, folders and variables; `quiet` captures its
        output."""
        path = f"{VENV / 'bin'}:{os.environ.get('PATH', '')}"
        environment = os.environ | {"PATH": path, **(variables or {})}
        return subprocess.run(
            program, env=environment, text=True, capture_output=quiet, timeout=timeout, input=stdin
        )


class Sdk:
    """A container on the server's network."""

    http, grpc = Address("server", 8000), Address("server", 8001)

    def __init__(self, stack: GpuStack) -> None:
        self._stack = stack
        stack.prepare_sdk()

    def run(
        self,
        program: Sequence[str],
        reads: Sequence[str] = (),
        writes: Path | None = None,
        quiet: bool = False,
        timeout: float | None = None,
        stdin: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Done:
        """As on the host: files and folders are mounted under the same names, and the container
        runs as the calling user."""
        options = ["--workdir", str(Path.cwd()), "--user", f"{os.getuid()}:{os.getgid()}"]
        for name, value in (variables or {}).items():
            options += ["--env", f"{name}={value}"]
        if writes:  # without capabilities, even root can write only to its own files
            os.chown(writes, os.getuid(), os.getgid())
        for mount in _mounts(reads, writes):
            options += ["--volume", mount]
        if quiet or not all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)):
            options.append("-T")
        return self._stack.run_sdk(options, program, quiet, timeout, stdin)


Side = Host | Sdk


def side_of(server: State) -> Side:
    if server.flavour != "gpu":
        return Host(server)
    # The code that talks to Docker takes a third of a second to import, longer than a request.
    from scripts.stacks.gpu import GpuStack

    return Sdk(GpuStack(server.settings_at_start))


def _mounts(reads: Sequence[str], writes: Path | None) -> Iterator[str]:
    """Missing files are not mounted (Docker would create folders); the program reports them."""
    there = {name: "ro" for name in reads if "://" not in name and Path(name).exists()}
    for name, mode in (there | ({str(writes): "rw"} if writes else {})).items():
        if ":" in name:
            raise UserError(f"Docker cannot mount {name}: its name contains a colon", "rename it")
        yield f"{Path(name).resolve()}:{os.path.abspath(name)}:{mode}"  # noqa: PTH100
