"""What recipes of several kinds have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Of a network that a GPU runs.
PLAN = "tensorrt_plan"
# On a CPU larger batches take more memory and no less time.
MOST_TOGETHER = 16

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


class Batch(Part):
    """What is left out, the models' configs say."""

    max: Count | None = None
    optimal: Count
    preferred: tuple[Count, ...] = ()
    max_delay_us: Annotated[int, Field(ge=0)] | None = None

    def set_in(self, member: Any) -> None:
        set_most(member, self.max)
        if member.platform != PLAN:
            return
        if self.preferred:
            member.dynamic_batching.preferred_batch_size[:] = self.preferred
        if self.max_delay_us is not None:
            member.dynamic_batching.max_queue_delay_microseconds = self.max_delay_us


class Instances(Part):
    """What is left out, the models' configs say."""

    preprocessing: Count | None = None
    network: Count | None = None
    network_on_gpu: Count | None = None


def set_most(member: Any, most: int | None) -> None:
    """Rows of requests that share a batch."""
    if not most:
        return
    member.max_batch_size = most
    if member.platform != PLAN and member.dynamic_batching.preferred_batch_size:
        member.dynamic_batching.preferred_batch_size[:] = [min(most, MOST_TOGETHER)]


def set_count(member: Any, count: int | None) -> None:
    if count:
        member.instance_group[0].count = count
