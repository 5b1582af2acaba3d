"""What recipes of several kinds have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
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


class Batch(Part):
    max: Count
    optimal: Count
    preferred: tuple[Count, ...]
    max_delay_us: Annotated[int, Field(ge=0)]


class Instances(Part):
    preprocessing: Count
    network: Count
    network_on_gpu: Count
