"""What recipes of several kinds have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from scripts.recipes.layout import CPU, GPU

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
Count = Annotated[int, Field(ge=1)]
Channels = tuple[float, float, float]


class Part(BaseModel):
    # Built only when a recipe of its kind is read: most commands read one or two.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Ensemble(Part):
    ensemble: Name


class Models(Ensemble):
    """The folders of the repository, in the order in which a request passes them."""

    preprocessing: Name
    network: Name
    postprocessing: Name

    def configs(
        self,
        preprocessing: str,
        network: str,
        network_on_gpu: str,
        postprocessing: str,
        ensemble: Callable[[str], str],
    ) -> dict[str, str]:
        """Path in the repository -> text, where each engine has a network of its own."""
        return {
            f"{self.preprocessing}/config.pbtxt": preprocessing,
            f"{self.network}_{CPU.ending}/config.pbtxt": network,
            f"{self.network}_{GPU.ending}/config.pbtxt": network_on_gpu,
            f"{self.postprocessing}/config.pbtxt": postprocessing,
            f"{self.ensemble}/config.pbtxt": ensemble(GPU.ending),
            f"{self.ensemble}/configs/cpu.pbtxt": ensemble(CPU.ending),
        }


class Batch(Part):
    max: Count
    optimal: Count
    preferred: tuple[Count, ...]
    max_delay_us: Annotated[int, Field(ge=0)]


class Instances(Part):
    preprocessing: Count
    network: Count
    network_on_gpu: Count
