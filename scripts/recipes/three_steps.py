"""What pipelines with a network between two programs have in common."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import PLAN, Batch, Instances, Models, set_count
from scripts.recipes.recipe import Recipe


class ThreeSteps(Recipe):
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
