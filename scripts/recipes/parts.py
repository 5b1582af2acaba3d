"""What recipes of several kinds have in common."""

from typing import Annotated, Any

from pydantic import Field

from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.recipe import Ensemble, Name, Part, Recipe

# Of a network that a GPU runs.
PLAN = "tensorrt_plan"
# On a CPU larger batches take more memory and no less time.
MOST_TOGETHER = 16

Count = Annotated[int, Field(ge=1)]
Channels = tuple[float, float, float]


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


class ThreeSteps(Recipe):
    """A network between two programs."""

    models: Models
    batch: Batch
    instances: Instances = Field(default_factory=Instances)

    @property
    def model_names(self) -> dict[str, str]:
        models = self.models
        networks = {f"network_{each.ending}": self.network_model(each) for each in (CPU, GPU)}
        return {
            "ensemble": models.ensemble,
            "preprocessing": models.preprocessing,
            **networks,
            "postprocessing": models.postprocessing,
        }

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.preprocessing, self.models.postprocessing]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.network}_{engine.ending}"

    @property
    def most(self) -> int:
        """Rows of requests that share a batch."""
        return self.batch.max or int(self.config.max_batch_size)

    def adapt(self, member: Any) -> None:
        self.batch.set_in(member)
        counts = self.instances
        if member.name == self.models.preprocessing:
            set_count(member, counts.preprocessing)
        elif member.name in map(self.network_model, (CPU, GPU)):
            on_gpu = member.platform == PLAN
            set_count(member, counts.network_on_gpu if on_gpu else counts.network)
