"""Flavour gpu: the containers of flavour cpu with NVIDIA's images, and a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cached_property

from scripts.base import console
from scripts.base.errors import UserError
from scripts.stacks.containers import DockerStack, last_line
from scripts.steps.plan import Gpu


class GpuStack(DockerStack):
    """NVIDIA's images, and a GPU that is proved to be seen from a container."""

    flavour = "gpu"
    compose_files = ("compose.yaml", "compose.gpu.yaml")
    images = ("export", "server", "sdk")
    image_suffix = "-gpu"

    def prepare(self) -> None:
        console.note(f"a container sees {self.gpu.name}")  # before gigabytes are pulled
        super().prepare()

    @cached_property
    def gpu(self) -> Gpu:
        """The GPU as a container sees it; nothing else is a proof."""
        run = self.compose("run", "--rm", "--no-deps", "-T", "probe", quiet=True)
        self.remove("probe")
        try:
            return Gpu.parse(run.stdout if run.returncode == 0 else "")
        except ValueError:
            raise UserError(*_why_no_gpu(last_line(run.stderr + run.stdout))) from None

    def tensorrt(self) -> str:
        """The version that the server's image carries: the only one whose plans it loads."""
        asked = self.compose(
            "run", "--rm", "--no-deps", "-T", "server", "printenv", "TRT_VERSION", quiet=True
        )
        # The image's entrypoint greets first.
        versions: list[str] = re.findall(r"^\d+\.\d+\.\d+", asked.stdout, re.MULTILINE)
        if not versions:
            raise UserError("the server's image does not tell its TRT_VERSION", "check TRITON_TAG")
        return versions[-1]

    def prepare_step(self, step: str) -> None:
        if step in ("export", "adopt", "plan"):
            self.build("export")

    def prepare_sdk(self) -> None:
        """Whoever asks first builds it; for the others nothing is left to do, or to say."""
        there = self._engine.images.list(self._image("sdk"))
        self.build("sdk", announced=not there)

    def run_sdk(
        self,
        options: Sequence[str],
        program: Sequence[str],
        quiet: bool,
        timeout: float | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        name = f"{self.project}-sdk-{os.getpid()}"  # others may ask at the same time
        try:
            return self.compose(
                *("run", "--rm", "--no-deps", "--name", name, *options, "sdk", *program),
                quiet=quiet,
                timeout=timeout,
                stdin=stdin,
            )
        finally:
            self.remove("sdk", name)  # Ctrl-C, or the time limit, ends Compose alone


REMEDIES = (
    (
        "could not select device driver",
        "Docker has no NVIDIA runtime",
        "install nvidia-container-toolkit, then: "
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    ),
    (
        "unresolvable CDI devices",
        "Docker finds no CDI description of the GPU",
        "write one: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (
        "nvidia-container-cli: initialization error",
        "the NVIDIA driver does not answer",
        "load it (sudo modprobe nvidia), or reboot after a driver update",
    ),
    (
        "Driver/library version mismatch",
        "the NVIDIA driver was updated and not loaded anew",
        "reboot the machine",
    ),
    (
        "executable file not found",
        "the container was given no GPU",
        "install nvidia-container-toolkit and restart Docker",
    ),
)


def _why_no_gpu(said: str) -> tuple[str, str]:
    for mark, cause, remedy in REMEDIES:
        if mark in said:
            return f"no container sees a GPU: {cause}", f"{remedy}; or take FLAVOUR=cpu"
    return f"no container sees a GPU: {said}", "mend that, or take FLAVOUR=cpu"
