"""The pipeline of arrays: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

import json

from scripts.recipes import pbtxt
from scripts.recipes.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Step, Tensor
from scripts.recipes.schema import Array
from scripts.recipes.shapes import of_pixels

ANSWERS = "post_output"


def configs(recipe: Array) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.preprocessing}/config.pbtxt": preprocessing(recipe),
        f"{models.preprocessing}/1/squares.json": squares(recipe),
        f"{models.network}/config.pbtxt": network_on_gpu(recipe),
        f"{models.network}/configs/cpu.pbtxt": network(recipe),
        f"{models.postprocessing}/config.pbtxt": postprocessing(recipe),
        f"{models.ensemble}/config.pbtxt": ensemble(recipe),
    }


def shared(recipe: Array) -> dict[str, str]:
    return {
        "preprocess": recipe.models.preprocessing,
        "postprocess": recipe.models.postprocessing,
    }


def squares(recipe: Array) -> str:
    return json.dumps(recipe.pictures.model_dump(), indent=2) + "\n"


def _square(name: str, recipe: Array) -> Tensor:
    return Tensor(name, "FP32", [3, recipe.pictures.side, recipe.pictures.side])


def _scores(name: str, recipe: Array) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Array) -> str:
    ragged = "pictures of different sizes share a batch"
    return pbtxt.config(
        "Pixels (height, width, 3; from 0 to 255) -> what the network was trained with.",
        recipe.models.preprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(Tensor("pre_input", "FP32", [-1, -1, -1], ragged=ragged)),
        pbtxt.outputs(_square("pre_output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("black", pbtxt.zeros(Tensor("pre_input", "FP32", [8, 8, 3]))),
    )


def network(recipe: Array) -> str:
    return pbtxt.config(
        "The network without a GPU. Run as resnet50_onnx is.",
        recipe.models.network,
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        *_signature(recipe),
        pbtxt.instances(recipe.instances.network, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("grey", pbtxt.zeros(_square("input_0", recipe))),
        pbtxt.parameter("threads", "2"),
    )


def network_on_gpu(recipe: Array) -> str:
    return pbtxt.config(
        "The network on a GPU: a TensorRT plan, pixels -> scores.",
        recipe.models.network,
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        *_signature(recipe),
        pbtxt.instances(recipe.instances.network_on_gpu, "GPU"),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        pbtxt.warmup("grey", pbtxt.zeros(_square("input_0", recipe))),
    )


def shapes(recipe: Array) -> dict[str, str]:
    """Those of its TensorRT plan."""
    return of_pixels("input_0", recipe.pictures.side, recipe.batch.optimal, recipe.batch.max)


def _signature(recipe: Array) -> tuple[str, str, str]:
    taken, given = _square("input_0", recipe), _scores("output_0", recipe)
    return *pbtxt.picture_network(taken, given), NEWEST_VERSION


def postprocessing(recipe: Array) -> str:
    scores = _scores("post_input", recipe)
    return pbtxt.config(
        "The network's scores -> the likeliest classes, each as probability:number:name.",
        recipe.models.postprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(scores),
        pbtxt.outputs(Tensor(ANSWERS, "STRING", [-1])),
        NEWEST_VERSION,
        pbtxt.instances(1, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("answers", str(recipe.answers)),
    )


def ensemble(recipe: Array) -> str:
    models = recipe.models
    return pbtxt.config(
        "Pixels (height, width, 3; from 0 to 255) -> the likeliest classes.",
        models.ensemble,
        pbtxt.platform("ensemble"),
        recipe.batch.max,
        pbtxt.inputs(Tensor("INPUT", "FP32", [-1, -1, -1])),
        pbtxt.outputs(Tensor("postprocess_result", "STRING", [-1])),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"pre_input": "INPUT"}, {"pre_output": "square"}),
            Step(models.network, {"input_0": "square"}, {"output_0": "scores"}),
            Step(models.postprocessing, {"post_input": "scores"}, {ANSWERS: "postprocess_result"}),
        ),
    )
