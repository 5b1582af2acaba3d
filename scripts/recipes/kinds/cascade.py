"""Image files -> what they show, by two networks: a small one where it is confident, and that of
another pipeline for the rest."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving.infer import Answer
from scripts.base.errors import UserError
from scripts.recipes import pbtxt
from scripts.recipes.layout import CPU, GPU, Engine, Layout, Share
from scripts.recipes.parts import Batch, Count, Ensemble, Name, Part
from scripts.recipes.pbtxt import NEWEST_VERSION, Step, Tensor, batches_form_themselves, share
from scripts.recipes.pictures import UNTRAINED, OfPictures, labels_of, require_pillow
from scripts.recipes.recipe import Export
from scripts.settings.settings import Settings
from scripts.steps.manifest import Manifest, Torchvision
from scripts.steps.shapes import of_pixels
from scripts.steps.workspace import Workspace


class CascadeModels(Ensemble):
    preprocessing: Name
    first: Name
    choice: Name
    then: Name


class CascadeInstances(Part):
    first: Count
    first_on_gpu: Count
    choice: Count


class Cascade(OfPictures):
    """An image file -> the probability of each class, from a small network or a large one."""

    kind: Literal["cascade"]
    models: CascadeModels
    source: str
    weights: str = "default"
    threshold: Annotated[float, Field(ge=0, le=1)]
    classes: Count
    crop: Count
    batch: Batch
    instances: CascadeInstances

    example: ClassVar[str] = "cascade.yaml"
    divided: ClassVar[bool] = True

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        return {"cascade_choice": self.models.choice}

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.choice]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.first}_{engine.ending}"

    def borrowed(self, engine: Engine) -> list[str]:
        return [self.models.preprocessing, f"{self.models.then}_{engine.ending}"]

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if layout.engine is not CPU or member.name != self.network_model(CPU):
            return False
        # As many processes as the large network. Threads that share a core slow down a network
        # this small.
        of_the_large = layout.network
        share(member, Share(of_the_large.instances, max(1, of_the_large.threads // 2)))
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
        spec = Torchvision(arch, weights, engine.export)
        return Export("export", spec.words, spec, self.setting not in settings.given)

    def computes_in(self, settings: Settings) -> str:
        """Never int8: it needs your photos, and the small network would lose the most accuracy."""
        return "fp32" if settings.precision == "fp32" else "auto"

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return of_pixels("input", self.crop, self.batch.optimal, self.batch.max)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        """Both networks must get the same pixels."""
        from bundle_serving.pictures import Transform  # which loads Pillow

        require_pillow(settings, "the cascade")
        crops = {self.crop, made.manifest.transform["crop"]}
        served = (repository / self.models.preprocessing).glob("[0-9]*/transform.json")
        crops |= {Transform.load(path).crop for path in served}
        if len(crops) > 1:
            raise UserError(
                f"the cascade's networks need different sizes ({' and '.join(map(str, crops))} "
                "pixels)",
                f"serve an ARCH that takes {self.crop}",
            )

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        """Only the small network's: the large one was checked in its own pipeline."""
        row: NDArray[Any] = np.nan_to_num(answer["OUTPUT"][0], nan=np.inf)
        return row if self.answered_by_itself(answer) else np.full_like(row, np.nan)

    def answered_by_itself(self, answer: Answer) -> bool:
        return bool(answer["ANSWERED_BY"].ravel()[0].decode().startswith(self.models.first))

    def gist(self, answer: Answer) -> Hashable:
        return int(answer["OUTPUT"].argmax())


def configs(recipe: Cascade) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.ensemble}/config.pbtxt": ensemble(recipe, GPU.ending),
        f"{models.ensemble}/configs/cpu.pbtxt": ensemble(recipe, CPU.ending),
        f"{models.first}_{CPU.ending}/config.pbtxt": first(recipe),
        f"{models.first}_{GPU.ending}/config.pbtxt": first_on_gpu(recipe),
        f"{models.choice}/config.pbtxt": choice(recipe, GPU.ending),
        f"{models.choice}/configs/cpu.pbtxt": choice(recipe, CPU.ending),
    }


def _pixels(name: str, recipe: Cascade) -> Tensor:
    return Tensor(name, "UINT8", [3, recipe.crop, recipe.crop])


def _scores(name: str, recipe: Cascade) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def ensemble(recipe: Cascade, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: ";\nwith the networks on a GPU."}[engine]
    return pbtxt.ensemble(
        "The bytes of an image file -> the probability of each class, and which network gave it"
        f"{where}",
        models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "UINT8", [-1]),
        [
            Tensor("OUTPUT", "FP32", [recipe.classes], labels=pbtxt.LABELS),
            Tensor("ANSWERED_BY", "STRING", [1]),
        ],
        Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
        Step(f"{models.first}_{engine}", {"input": "pixels"}, {"output": "scores"}),
        Step(
            models.choice,
            {"SCORES": "scores", "PIXELS": "pixels"},
            {"OUTPUT": "OUTPUT", "ANSWERED_BY": "ANSWERED_BY"},
        ),
    )


def choice(recipe: Cascade, engine: str) -> str:
    models = recipe.models
    return pbtxt.config(
        "The small network's scores -> probabilities, its own where it is sure, else the large"
        " one's.\nNo warmup: the model that it asks has its own.",
        models.choice,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(_scores("SCORES", recipe), _pixels("PIXELS", recipe)),
        pbtxt.outputs(
            _scores("OUTPUT", recipe),
            Tensor("ANSWERED_BY", "STRING", [1]),
        ),
        NEWEST_VERSION,
        pbtxt.instances(
            recipe.instances.choice,
            "CPU",
            "Several, because most only wait for the large network.",
        ),
        batches_form_themselves(),
        pbtxt.parameter("first", f"{models.first}_{engine}"),
        pbtxt.parameter("then", f"{models.then}_{engine}"),
        pbtxt.parameter("threshold", str(recipe.threshold)),
    )


def first(recipe: Cascade) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.onnx(
        "The cascade's small network: pixels -> scores. Runs like resnet50_onnx.",
        f"{recipe.models.first}_{CPU.ending}",
        recipe.batch.max,
        pbtxt.picture_network(pixels, _scores("output", recipe)),
        recipe.instances.first,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        threads=1,
    )


def first_on_gpu(recipe: Cascade) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.plan(
        "The cascade's small network on a GPU: a TensorRT plan, pixels -> scores.",
        f"{recipe.models.first}_{GPU.ending}",
        recipe.batch,
        pbtxt.picture_network(pixels, _scores("output", recipe)),
        recipe.instances.first_on_gpu,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
    )
