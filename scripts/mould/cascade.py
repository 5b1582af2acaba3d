"""The cascade: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

from scripts.mould import pbtxt
from scripts.mould.image import LABELS, ON_CPU, ON_GPU
from scripts.mould.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Tensor
from scripts.mould.recipe import Cascade
from scripts.pipeline.shapes import of_pixels


def configs(recipe: Cascade) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.cascade}/config.pbtxt": cascade(recipe, ON_GPU),
        f"{models.cascade}/configs/cpu.pbtxt": cascade(recipe, ON_CPU),
        f"{models.first}_{ON_CPU}/config.pbtxt": first(recipe),
        f"{models.first}_{ON_GPU}/config.pbtxt": first_on_gpu(recipe),
    }


def shared(recipe: Cascade) -> dict[str, str]:
    return {"cascade": recipe.models.cascade}


def cascade(recipe: Cascade, engine: str) -> str:
    models = recipe.models
    ragged = "image files of different lengths share a batch"
    return pbtxt.config(
        "The bytes of an image file -> the probability of each class, and which network gave it."
        "\nNo warmup: the models that it asks have theirs.",
        models.cascade,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(Tensor("INPUT", "UINT8", [-1], ragged=ragged)),
        pbtxt.outputs(
            Tensor("OUTPUT", "FP32", [recipe.classes], labels=LABELS),
            Tensor("ANSWERED_BY", "STRING", [1]),
        ),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.cascade, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.parameter("preprocessing", models.preprocessing),
        pbtxt.parameter("first", f"{models.first}_{engine}"),
        pbtxt.parameter("then", f"{models.then}_{engine}"),
        pbtxt.parameter("threshold", str(recipe.threshold)),
    )


def first(recipe: Cascade) -> str:
    pixels = _pixels(recipe)
    return pbtxt.config(
        "The cascade's small network: pixels -> scores. Run as resnet50_onnx is.",
        f"{recipe.models.first}_{ON_CPU}",
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        pbtxt.inputs(pixels),
        pbtxt.outputs(Tensor("output", "FP32", [recipe.classes])),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.first, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        pbtxt.parameter("threads", "1"),
    )


def first_on_gpu(recipe: Cascade) -> str:
    pixels = _pixels(recipe)
    return pbtxt.config(
        "The cascade's small network on a GPU: a TensorRT plan, pixels -> scores.",
        f"{recipe.models.first}_{ON_GPU}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        pbtxt.inputs(pixels),
        pbtxt.outputs(Tensor("output", "FP32", [recipe.classes])),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.first_on_gpu, "GPU"),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
    )


def shapes(recipe: Cascade) -> dict[str, str]:
    """Those of the small network's TensorRT plan."""
    return of_pixels("input", recipe.crop, recipe.batch.optimal, recipe.batch.max)


def _pixels(recipe: Cascade) -> Tensor:
    return Tensor("input", "UINT8", [3, recipe.crop, recipe.crop])
