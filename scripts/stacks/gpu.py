"""Flavour gpu: like flavour cpu, but with NVIDIA's images and a GPU."""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bundle_serving.process.gpu import LOST, NVML_LOST
from scripts.artefacts import gpus
from scripts.artefacts.gpus import Gpu
from scripts.artefacts.step import Place
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes.layout import GPU
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.stacks.docker_engine import last_line
from scripts.stacks.state import State

# In WSL, Windows has the driver, and processes cannot share GPU memory (CUDA IPC).
WSL = Path("/usr/lib/wsl/lib/nvidia-smi")


class GpuStack(DockerStack):
    """NVIDIA's images, and a GPU that a container was seen to use."""

    flavour = "gpu"
    engine = GPU
    compose_files = ("compose.yaml", "compose.gpu.yaml")
    other_layers = 0
    image_suffix = "-gpu"
    services: ClassVar[Mapping[Place, str]] = {
        Place.EXPORT: "export",
        Place.PLAN: "engine",
        Place.SERVER: "gate",
        Place.ADOPT: "export",
    }

    def prepare(self) -> None:
        """Refuses what cannot work before gigabytes are pulled."""
        console.note(f"containers see {self.description}")
        for gpu in self.gpus:
            if warning := gpus.require_fit(gpu, self._settings.triton_tag):
                console.note(f"{gpu.name}: {warning}")
        if self._settings.postprocess == "gpu" and not scores_stay(self._settings):
            console.note("WSL2 has no CUDA IPC: using POSTPROCESS=cpu instead of gpu")
        super().prepare()

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs to serve on, as seen from a container, the only reliable check."""
        run = self.compose.run("run", "--rm", "--no-deps", "-T", "probe", *gpus.QUERY, quiet=True)
        self.compose.remove("probe")
        try:
            seen = gpus.parse(run.stdout if run.returncode == 0 else "")
        except ValueError:
            self.compose.remove_networks(self.project)  # that Compose created for the probe
            raise UserError(*why_no_gpu(last_line(run.stderr + run.stdout))) from None
        return gpus.choose_gpus(seen, self._settings.gpus)

    @property
    def gpu(self) -> Gpu:
        """One of them; they are all of the same model."""
        return self.gpus[0]

    @property
    def description(self) -> str:
        count = len(self.gpus)
        return self.gpu.name if count == 1 else f"{count} x {self.gpu.name}"

    def why_alone(self, known: State) -> str | None:
        return super().why_alone(known) or "a GPU may not have memory for two"

    def explain_lost_gpu(self) -> str | None:
        """Why the server's container has lost its GPU, if it has."""
        return LOST if NVML_LOST in self.ask_in_server("nvidia-smi", "-L") else None

    @cached_property
    def tensorrt(self) -> str:
        """The version in the server's image, which loads plans of that version only."""
        asked = self.compose.run(
            "run", "--rm", "--no-deps", "-T", "server", "printenv", "TRT_VERSION", quiet=True
        )
        # The image's entrypoint prints a banner first.
        versions: list[str] = re.findall(r"^\d+\.\d+\.\d+", asked.stdout, re.MULTILINE)
        if not versions:
            raise UserError(
                "the server's image does not report its TRT_VERSION", "check TRITON_TAG"
            )
        return versions[-1]

    def prepare_place(self, place: Place) -> None:
        if place is not Place.SERVER:
            self.images.build("export")


def scores_stay(settings: Settings) -> bool:
    """Whether the postprocessing reads the scores from GPU memory."""
    return settings.postprocess == "gpu" and not WSL.exists()


NO_TOOLKIT = (
    "install nvidia-container-toolkit, then: "
    "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
)
DESCRIBE = "regenerate it: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

REMEDIES = (
    ("could not select device driver", "Docker has no NVIDIA runtime", NO_TOOLKIT),
    # Docker 29 tries CDI first and has its own messages.
    (
        "failed to discover GPU vendor from CDI",
        "Docker knows no GPU, neither through CDI nor through NVIDIA's runtime",
        NO_TOOLKIT,
    ),
    ("unresolvable CDI devices", "the CDI specification lacks this GPU, or is missing", DESCRIBE),
    ("failed to inject CDI devices", "the CDI specification does not fit this machine", DESCRIBE),
    (
        NVML_LOST,
        "containers may not open its devices",
        "sudo systemctl restart docker; to prevent it, use CDI: docs/gpu.md",
    ),
    (
        "nvidia-container-cli: initialization error",
        "the NVIDIA driver does not answer",
        "load it (sudo modprobe nvidia), or reboot after a driver update",
    ),
    (
        "Driver/library version mismatch",
        "the NVIDIA driver was updated but not reloaded",
        "reboot the machine",
    ),
    (
        "executable file not found",
        "the container was given no GPU",
        "install nvidia-container-toolkit and restart Docker",
    ),
)


def why_no_gpu(message: str) -> tuple[str, str]:
    for mark, cause, remedy in REMEDIES:
        if mark in message:
            return f"no container sees a GPU: {cause}", f"{remedy}; or use FLAVOUR=cpu"
    return f"no container sees a GPU: {message}", "fix that, or use FLAVOUR=cpu"
