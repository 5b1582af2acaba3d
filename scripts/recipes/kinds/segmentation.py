"""Image files -> which class each of their pixels belongs to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from bundle_serving import golden
from bundle_serving.agreement import Agreement, of_answers
from bundle_serving.infer import Answer
from scripts.base import console
from scripts.base.paths import ROOT
from scripts.recipes import drawing, pbtxt
from scripts.recipes.finding import Finds
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count
from scripts.recipes.pbtxt import Step, Tensor, share
from scripts.recipes.pictures import best, labels_of
from scripts.recipes.recipe import Contents, Export, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.fine_tuned import Segmenter
from scripts.steps.manifest import EXPECTED
from scripts.steps.shapes import profile
from scripts.steps.workspace import Workspace

# Whose program this one shares.
PREPROCESSING = "preprocessing"
WARM = ROOT / "model_repository" / PREPROCESSING / "warmup" / "mug.jpg"

MASK = Tensor("MASK", "UINT8", [-1, -1])
LABELS = Tensor("LABELS", "STRING", [-1])
SHARES = Tensor("SHARES", "FP32", [-1])


class Segmentation(Finds):
    """An image file -> of each pixel, the number of its class."""

    kind: Literal["segmentation"]
    longest: Count

    example: ClassVar[str] = "segmentation.yaml"

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {
            PREPROCESSING: models.preprocessing,
            "segmentation_postprocessing": models.postprocessing,
        }

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        how = self.transform(made, layout, longest=self.longest)
        return {
            self.models.preprocessing: {"transform.json": how},
            self.models.postprocessing: {pbtxt.LABELS: labels_of(made)},
        }

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if member.name == self.models.preprocessing:
            share(member, layout.preprocessing)
        elif member.name == self.network_model(CPU) and layout.engine is CPU:
            share(member, layout.network)
        else:
            return False
        return True

    def export(self, settings: Settings, engine: Engine) -> Export:
        return self.of_torchvision("segmentation", Segmenter, settings, engine)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """Most pictures are as photographs: four wide and three high."""
        side, longest, batch = self.side, self.longest, self.batch
        least, usual, most = (
            {"input": shape}
            for shape in (
                (1, 3, side, side),
                (batch.optimal, 3, side, side * 4 // 3),
                (batch.max, 3, longest, longest),
            )
        )
        return profile(least, usual, most)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Client
        from bundle_client.show import areas_as_json, areas_as_table

        out, top = arguments.load(environment).out, best(environment)

        def ask(client: Client, file: bytes, name: str) -> str:
            found = client.segment(file, self.ensemble)
            shown = replace(found, source=name, areas=found.areas[:top])
            if out:
                drawing.save(
                    file, out, lambda picture: drawing.areas(picture, shown.mask, shown.areas)
                )
            as_json = environment.get("JSON")
            return areas_as_json(shown) if as_json else areas_as_table(shown, console.out)

        return self.about(server, asked, ask)

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        return of_answers(golden.load(made.onnx / EXPECTED), answers)

    def gist(self, answer: Answer) -> Hashable:
        """The class with the largest share."""
        return int(answer[SHARES.name][0].argmax())


def configs(recipe: Segmentation) -> dict[str, str]:
    """Path in the repository -> text."""
    return recipe.models.configs(
        preprocessing(recipe),
        network(recipe),
        network_on_gpu(recipe),
        postprocessing(recipe),
        partial(ensemble, recipe),
    )


def _file(length: int = -1) -> Tensor:
    ragged = "image files of different lengths share a batch"
    return Tensor("INPUT_0", "UINT8", [length], ragged=ragged)


def _pixels(name: str) -> Tensor:
    return Tensor(name, "UINT8", [3, -1, -1])


def preprocessing(recipe: Segmentation) -> str:
    return pbtxt.program(
        "The bytes of an image file -> uint8 pixels of the whole picture, its short side as the"
        " network was\ntrained. Cast and normalisation are the first nodes of the network's own"
        " graph.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [_file()],
        [_pixels("OUTPUT_0")],
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        pbtxt.warmup("mug", pbtxt.file(_file(WARM.stat().st_size), WARM.name)),
        pbtxt.parameter("threads", "1"),
    )


def network(recipe: Segmentation) -> str:
    return pbtxt.onnx(
        "The network: pixels -> the number of each one's class. Runs like resnet50_onnx. Pictures"
        " of one\nheight and width share a batch.",
        f"{recipe.models.network}_{CPU.ending}",
        recipe.batch.max,
        _signature(),
        recipe.instances.network,
        _warm(recipe),
        threads=1,
    )


def network_on_gpu(recipe: Segmentation) -> str:
    return pbtxt.plan(
        "The network on a GPU: a TensorRT plan, pixels -> the number of each one's class. Pictures"
        " of one\nheight and width share a batch.",
        f"{recipe.models.network}_{GPU.ending}",
        recipe.batch,
        _signature(),
        recipe.instances.network_on_gpu,
        _warm(recipe),
    )


def _signature() -> tuple[str, str]:
    mask = replace(MASK, name="output")
    return pbtxt.inputs(replace(_pixels("input"), format="FORMAT_NCHW")), pbtxt.outputs(mask)


def _warm(recipe: Segmentation) -> str:
    square = replace(_pixels("input"), dims=[3, recipe.side, recipe.side])
    return pbtxt.warmup("black", pbtxt.zeros(square))


def postprocessing(recipe: Segmentation) -> str:
    return pbtxt.program(
        "The number of each pixel's class -> the names of all classes, and the share of the picture"
        " that each has.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [MASK],
        [LABELS, SHARES],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(replace(MASK, dims=[8, 8]))),
    )


def ensemble(recipe: Segmentation, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: ";\nwith the network on a GPU."}[engine]
    return pbtxt.ensemble(
        "The bytes of an image file -> the number of each pixel's class, the classes' names, and"
        f" their shares of the\npicture{where}",
        models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "UINT8", [-1]),
        [MASK, LABELS, SHARES],
        Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
        Step(f"{models.network}_{engine}", {"input": "pixels"}, {"output": MASK.name}),
        Step(
            models.postprocessing,
            {MASK.name: MASK.name},
            {tensor.name: tensor.name for tensor in (LABELS, SHARES)},
        ),
    )
