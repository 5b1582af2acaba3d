"""The pipeline of texts: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

import struct

import yaml

from scripts.mould import pbtxt
from scripts.mould.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Step, Tensor
from scripts.mould.recipe import Text

QUERY = Tensor("QUERY", "STRING", [1])
# As long as the longest text of a request, and a multiple of 8.
IDS = Tensor("INPUT_IDS", "INT64", [-1])
MASK = Tensor("ATTENTION_MASK", "INT64", [-1])
LABEL = Tensor("LABEL", "STRING", [1])
SCORE = Tensor("SCORE", "FP32", [1])

RECIPE_FILE = "recipe.yaml"
TOKENIZER = "tokenizer"  # the folder beside it that the export fills


def configs(recipe: Text) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.preprocessing}/config.pbtxt": preprocessing(recipe),
        f"{models.preprocessing}/1/{RECIPE_FILE}": how_to_tokenise(recipe),
        f"{models.preprocessing}/warmup/text": serialised(recipe.warmup),
        f"{models.network}_onnx/config.pbtxt": network(recipe),
        f"{models.postprocessing}/config.pbtxt": postprocessing(recipe),
        f"{models.ensemble}/config.pbtxt": ensemble(recipe),
    }


def shared(recipe: Text) -> dict[str, str]:
    models = recipe.models
    return {
        "sentiment_preprocessing": models.preprocessing,
        "sentiment_postprocessing": models.postprocessing,
    }


def serialised(text: str) -> str:
    """As Triton reads a string from a file: its length in four bytes goes before it."""
    return struct.pack("<I", len(text)).decode("ascii") + text


def how_to_tokenise(recipe: Text) -> str:
    said = {"backbone_model_name": TOKENIZER} | recipe.words.model_dump()
    return "# The tokenizer: a folder beside this file, or a hub's name.\n" + yaml.safe_dump(
        said, sort_keys=False
    )


def _scores(name: str, recipe: Text) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Text) -> str:
    return pbtxt.config(
        "A text (UTF-8) -> the tokens that the network was trained on.",
        recipe.models.preprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(QUERY),
        pbtxt.outputs(IDS, MASK),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("text", pbtxt.file(QUERY, "text")),
        pbtxt.parameter("recipe_file", RECIPE_FILE),
    )


def network(recipe: Text) -> str:
    eight = [Tensor(tensor.name, tensor.data_type, [8]) for tensor in (IDS, MASK)]
    return pbtxt.config(
        "The network: tokens -> scores. Requests of one length share a batch; none is padded to the"
        "\nlength of another. Run as resnet50_onnx is.",
        f"{recipe.models.network}_onnx",
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        pbtxt.inputs(IDS, MASK),
        pbtxt.outputs(_scores("SCORES", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.network, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("padding", *map(pbtxt.zeros, eight)),
        pbtxt.parameter("threads", "1"),
    )


def postprocessing(recipe: Text) -> str:
    scores = _scores("SCORES", recipe)
    return pbtxt.config(
        "The network's scores -> the likeliest label, and its probability.",
        recipe.models.postprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(scores),
        pbtxt.outputs(LABEL, SCORE),
        NEWEST_VERSION,
        pbtxt.instances(1, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("labels", ",".join(recipe.labels)),
    )


def ensemble(recipe: Text) -> str:
    models = recipe.models
    ids, mask, scores = IDS.name, MASK.name, "SCORES"
    return pbtxt.config(
        "A text -> its label, and how sure that is.",
        models.ensemble,
        pbtxt.platform("ensemble"),
        recipe.batch.max,
        pbtxt.inputs(QUERY),
        pbtxt.outputs(LABEL, SCORE),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"QUERY": "QUERY"}, {ids: "ids", mask: "mask"}),
            Step(f"{models.network}_onnx", {ids: "ids", mask: "mask"}, {scores: "scores"}),
            Step(models.postprocessing, {scores: "scores"}, {"LABEL": "LABEL", "SCORE": "SCORE"}),
        ),
    )
