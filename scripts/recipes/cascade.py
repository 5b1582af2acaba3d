"""The cascade: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

from scripts.recipes import pbtxt
from scripts.recipes.image import ON_CPU, ON_GPU
from scripts.recipes.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Step, Tensor
from scripts.recipes.schema import Cascade
from scripts.recipes.shapes import of_pixels


def configs(recipe: Cascade) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.ensemble}/config.pbtxt": ensemble(recipe, ON_GPU),
        f"{models.ensemble}/configs/cpu.pbtxt": ensemble(recipe, ON_CPU),
        f"{models.first}_{ON_CPU}/config.pbtxt": first(recipe),
        f"{models.first}_{ON_GPU}/config.pbtxt": first_on_gpu(recipe),
        f"{models.choice}/config.pbtxt": choice(recipe, ON_GPU),
        f"{models.choice}/configs/cpu.pbtxt": choice(recipe, ON_CPU),
    }


def shared(recipe: Cascade) -> dict[str, str]:
    return {"cascade_choice": recipe.models.choice}


def _pixels(name: str, recipe: Cascade) -> Tensor:
    return Tensor(name, "UINT8", [3, recipe.crop, recipe.crop])


def _scores(name: str, recipe: Cascade) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def ensemble(recipe: Cascade, engine: str) -> str:
    models = recipe.models
    where = {ON_CPU: ".", ON_GPU: ";\nwith the networks on a GPU."}[engine]
    return pbtxt.config(
        "The bytes of an image file -> the probability of each class, and which network gave it"
        f"{where}",
        models.ensemble,
        pbtxt.platform("ensemble"),
        recipe.batch.max,
        pbtxt.inputs(Tensor("INPUT", "UINT8", [-1])),
        pbtxt.outputs(
            Tensor("OUTPUT", "FP32", [recipe.classes], labels=pbtxt.LABELS),
            Tensor("ANSWERED_BY", "STRING", [1]),
        ),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
            Step(f"{models.first}_{engine}", {"input": "pixels"}, {"output": "scores"}),
            Step(
                models.choice,
                {"SCORES": "scores", "PIXELS": "pixels"},
                {"OUTPUT": "OUTPUT", "ANSWERED_BY": "ANSWERED_BY"},
            ),
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
            "Most only wait for the large network, and block nobody who need not.",
        ),
        BATCHES_FORM_THEMSELVES,
        pbtxt.parameter("first", f"{models.first}_{engine}"),
        pbtxt.parameter("then", f"{models.then}_{engine}"),
        pbtxt.parameter("threshold", str(recipe.threshold)),
    )


def first(recipe: Cascade) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.config(
        "The cascade's small network: pixels -> scores. Run as resnet50_onnx is.",
        f"{recipe.models.first}_{ON_CPU}",
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        *pbtxt.picture_network(pixels, _scores("output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.first, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        pbtxt.parameter("threads", "1"),
    )


def first_on_gpu(recipe: Cascade) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.config(
        "The cascade's small network on a GPU: a TensorRT plan, pixels -> scores.",
        f"{recipe.models.first}_{ON_GPU}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        *pbtxt.picture_network(pixels, _scores("output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.first_on_gpu, "GPU"),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
    )


def shapes(recipe: Cascade) -> dict[str, str]:
    """Those of the small network's TensorRT plan."""
    return of_pixels("input", recipe.crop, recipe.batch.optimal, recipe.batch.max)
