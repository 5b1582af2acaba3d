"""Image files -> what they show, by two networks: a small one where it is confident, and that of
another pipeline for the rest."""

from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving.infer import Answer
from scripts.artefacts.manifest import Manifest, Torchvision
from scripts.artefacts.shapes import of_pixels, sides
from scripts.artefacts.step import EXPORT
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.layout import CPU, GPU, Engine, Layout, Share
from scripts.recipes.parts import Batch, Count, set_count
from scripts.recipes.pictures import UNTRAINED, OfPictures, labels_of, require_pillow
from scripts.recipes.recipe import Ensemble, Export, Name, Part
from scripts.settings.settings import Settings


class CascadeModels(Ensemble):
    preprocessing: Name
    first: Name
    choice: Name
    then: Name


class CascadeInstances(Part):
    first: Count | None = None
    first_on_gpu: Count | None = None
    choice: Count | None = None


class Cascade(OfPictures):
    """An image file -> the probability of each class, from a small network or a large one."""

    kind: Literal["cascade"]
    models: CascadeModels
    source: str
    weights: str = "default"
    # What is left out, the models' configs say.
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    classes: Count | None = None
    crop: Count | None = None
    batch: Batch
    instances: CascadeInstances = Field(default_factory=CascadeInstances)

    example: ClassVar[str] = "cascade.yaml"
    divided: ClassVar[bool] = True

    @property
    def model_names(self) -> dict[str, str]:
        models, (first, on_gpu) = self.models, map(self.network_model, (CPU, GPU))
        return {
            "ensemble": models.ensemble,
            "first": first,
            "first_on_gpu": on_gpu,
            "choice": models.choice,
        }

    @property
    def side(self) -> int:
        """Of the pixels that both networks take."""
        return self.crop or int(configs.read_model(self.network_model(CPU)).input[0].dims[-1])

    @property
    def most(self) -> int:
        """Rows of requests that share a batch."""
        return self.batch.max or int(self.config.max_batch_size)

    def adapt(self, member: Any) -> None:
        self.batch.set_in(member)
        pixels = [3, self.crop, self.crop] if self.crop else []
        scores = [self.classes] if self.classes else []
        given = {"output": scores, "OUTPUT": scores, "SCORES": scores}
        configs.set_dims(member, {"input": pixels, "PIXELS": pixels, **given})
        counts = self.instances
        if member.name == self.network_model(CPU):
            set_count(member, counts.first)
        elif member.name == self.network_model(GPU):
            set_count(member, counts.first_on_gpu)
        elif member.name == self.models.choice:
            set_count(member, counts.choice)
            self._name_networks(member, GPU)
            if self.threshold is not None:
                configs.set_parameters(member, threshold=self.threshold)

    def _name_networks(self, member: Any, engine: Engine) -> None:
        first, (_, then) = self.network_model(engine), self.list_borrowed(engine)
        configs.set_parameters(member, first=first, then=then)

    def set_engine(self, member: Any, engine: Engine) -> bool:
        if member.name != self.models.choice:
            return super().set_engine(member, engine)
        self._name_networks(member, engine)
        return engine is CPU

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.choice]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.first}_{engine.ending}"

    def list_borrowed(self, engine: Engine) -> list[str]:
        return [self.models.preprocessing, f"{self.models.then}_{engine.ending}"]

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if layout.engine is not CPU or member.name != self.network_model(CPU):
            return False
        # As many processes as the large network. Threads that share a core slow down a network
        # this small.
        of_the_large = layout.network
        configs.set_share(member, Share(of_the_large.instances, max(1, of_the_large.threads // 2)))
        return True

    def label_lines(self, made: Workspace, repository: Path) -> str:
        """The small network's labels; if the large one is untrained, they say so too."""
        labels = labels_of(made).splitlines()
        if UNTRAINED not in labels[0] and self._large_is_untrained(repository):
            labels = [label + UNTRAINED for label in labels]
        return "".join(f"{label}\n" for label in labels)

    def _large_is_untrained(self, repository: Path) -> bool:
        found = repository.glob(f"{self.models.then}_*/[0-9]*/manifest.json")
        manifests = (Manifest.load(path) for path in found)
        return any(manifest.untrained for manifest in manifests if manifest)

    def deciding(self) -> tuple[str, ...]:
        return (*self.settings, "PRECISION")

    def export(self, settings: Settings, engine: Engine) -> Export:
        weights = str(settings.value(self.setting)) if self.setting else self.weights
        arch = self.source.removeprefix("torchvision/")
        spec = Torchvision(arch, weights, engine.export, setting=self.setting or "WEIGHTS")
        return Export(EXPORT, spec, self.setting not in settings.given)

    def computes_in(self, settings: Settings) -> str:
        """Never int8: it needs your photos, and the small network would lose the most accuracy."""
        return "fp32" if settings.precision == "fp32" else "auto"

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return of_pixels("input", self.side, self.batch.optimal, self.most)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        """Both networks must get the same pixels."""
        from bundle_serving.pictures import Transform  # which loads Pillow

        require_pillow(settings, "the cascade")
        crops = {(self.side, self.side), sides(made.manifest.transform["crop"])}
        served = (repository / self.models.preprocessing).glob("[0-9]*/transform.json")
        crops |= {Transform.load(path).sides for path in served}
        if len(crops) > 1:
            shown = " and ".join(f"{width}x{height}" for height, width in sorted(crops))
            raise UserError(
                f"the cascade's networks need different sizes ({shown} pixels)",
                f"serve an ARCH that takes {self.side}",
            )

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        """Only the small network's: the large one was checked in its own pipeline."""
        row = super().probabilities(answer)
        return row if self.is_own_answer(answer) else np.full_like(row, np.nan)

    def is_own_answer(self, answer: Answer) -> bool:
        return bool(answer["ANSWERED_BY"].ravel()[0].decode().startswith(self.models.first))

    def gist(self, answer: Answer) -> Hashable:
        return int(answer["OUTPUT"].argmax())
