"""The GPUs that a container sees, those to serve on, and what a release's images require. Pure
functions on nvidia-smi's output."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.base.errors import UserError

QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,compute_cap,driver_version,memory.total,uuid",
    "--format=csv,noheader",
)
ALL = "all"

# CUDA's major version in the images, by the first release that has it, and the oldest driver that
# runs every CUDA of that major version ("Minor Version Compatibility" in NVIDIA's docs).
CUDA_SINCE = {(25, 8): 13, (0, 0): 12}
OLDEST_DRIVER = {13: 580, 12: 525}
# Turing: the oldest that TensorRT 10.16 and 11 support.
OLDEST_CAPABILITY = 7.5

# All others are data-centre GPUs, for which an older driver may work by forward compatibility.
FOR_A_DESK = re.compile("GeForce|RTX|Quadro|TITAN", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    index: str
    name: str
    compute_capability: str
    driver: str
    memory: str
    uuid: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """A plan fits every GPU of the same kind."""
        return self.name, self.compute_capability

    def is_called(self, name: str) -> bool:
        """As CUDA reads it: an index, or a UUID or its beginning."""
        return name == self.index or (name.startswith("GPU-") and self.uuid.startswith(name))


def parse(rows: str) -> list[Gpu]:
    """ValueError if nvidia-smi lists no GPU."""
    found = list(csv.reader(rows.splitlines(), skipinitialspace=True))
    if not found or any(len(row) != 6 for row in found):
        raise ValueError(rows)
    return [Gpu(*row) for row in found]


def choose_gpus(seen: Sequence[Gpu], wanted: str, setting: str = "GPUS") -> list[Gpu]:
    """The GPUs that the setting names, by index or UUID, in that order; refused if one plan would
    not fit all of them."""
    gpus = list(seen) if wanted == ALL else []
    for name in wanted.split(",") if wanted != ALL else ():
        gpu = next((gpu for gpu in seen if gpu.is_called(name)), None)
        if gpu is None:
            raise UserError(
                f"{setting}={wanted} names a GPU that this machine does not have: {name}",
                f"this machine has {_list_names(seen)}",
            )
        gpus.append(gpu)
    kinds = list(dict.fromkeys(gpu.kind for gpu in gpus))
    if len(kinds) > 1:
        alike = [[gpu.index for gpu in gpus if gpu.kind == kind] for kind in kinds]
        choices = " or ".join(f"{setting}={','.join(each)}" for each in alike)
        raise UserError(
            f"the GPUs differ, and a plan fits one kind only: {_list_names(gpus)}",
            f"choose the ones to serve on: {choices}",
        )
    return gpus


def _list_names(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus)


def require_fit(gpu: Gpu, tag: str) -> str | None:
    """Refuses a GPU that a release's images cannot use; a warning if that is uncertain."""
    cuda = _cuda(tag)
    if number(gpu.compute_capability) < OLDEST_CAPABILITY:
        raise UserError(
            f"{gpu.name} is of compute capability {gpu.compute_capability}, and TensorRT requires "
            f"{OLDEST_CAPABILITY}",
            "use FLAVOUR=cpu",
        )
    oldest = OLDEST_DRIVER[cuda]
    if number(gpu.driver) >= oldest:
        return None
    cause = f"driver {gpu.driver} is older than {oldest}, and TRITON_TAG={tag} has CUDA {cuda}"
    if FOR_A_DESK.search(gpu.name):
        raise UserError(
            cause,
            "update the driver (forward compatibility, the alternative, is for "
            "data-centre GPUs only); or use FLAVOUR=cpu",
        )
    return f"{cause}: this relies on forward compatibility (NVIDIA Container Toolkit 1.17.8)"


def _cuda(tag: str) -> int:
    found = re.match(r"(\d+)\.(\d+)", tag)
    if not found:
        raise UserError(f"TRITON_TAG={tag} is not a release", "use one like 26.07")
    release = int(found[1]), int(found[2])
    return next(cuda for since, cuda in CUDA_SINCE.items() if release >= since)


def number(text: str) -> float:
    """The number at the start of a text: 610.43.02 -> 610.43, 24576 MiB -> 24576."""
    found = re.match(r"\d+(\.\d+)?", text)
    return float(found[0]) if found else 0.0
