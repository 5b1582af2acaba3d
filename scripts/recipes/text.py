"""The pipeline of texts: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

import math
import struct

import yaml

from scripts.recipes import pbtxt
from scripts.recipes.image import ON_CPU, ON_GPU
from scripts.recipes.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Step, Tensor
from scripts.recipes.schema import Text
from scripts.recipes.shapes import profile

QUERY = Tensor("QUERY", "STRING", [1])
# As long as the longest text of a request, and a multiple of this.
STEP = 8
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
        f"{models.network}_{ON_CPU}/config.pbtxt": network(recipe),
        f"{models.network}_{ON_GPU}/config.pbtxt": network_on_gpu(recipe),
        f"{models.postprocessing}/config.pbtxt": postprocessing(recipe),
        f"{models.ensemble}/config.pbtxt": ensemble(recipe, ON_GPU),
        f"{models.ensemble}/configs/cpu.pbtxt": ensemble(recipe, ON_CPU),
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
    return pbtxt.config(
        "The network: tokens -> scores. Requests of one length share a batch; none is padded to the"
        "\nlength of another. Run as resnet50_onnx is.",
        f"{recipe.models.network}_{ON_CPU}",
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        pbtxt.inputs(IDS, MASK),
        pbtxt.outputs(_scores("SCORES", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.network, "CPU"),
        BATCHES_FORM_THEMSELVES,
        _warm_padding(),
        pbtxt.parameter("threads", "1"),
    )


def network_on_gpu(recipe: Text) -> str:
    return pbtxt.config(
        "The network on a GPU: a TensorRT plan, tokens -> scores. Requests of one length share a"
        " batch.",
        f"{recipe.models.network}_{ON_GPU}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        pbtxt.inputs(IDS, MASK),
        pbtxt.outputs(_scores("SCORES", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.network_on_gpu, "GPU"),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        _warm_padding(),
    )


def _warm_padding() -> str:
    short = (Tensor(tensor.name, tensor.data_type, [STEP]) for tensor in (IDS, MASK))
    return pbtxt.warmup("padding", *map(pbtxt.zeros, short))


def shapes(recipe: Text) -> dict[str, str]:
    """Those of its TensorRT plan: by the number of texts, and by their length."""

    def at(texts: int, tokens: int) -> dict[str, tuple[int, int]]:
        return {tensor.name: (texts, tokens) for tensor in (IDS, MASK)}

    batch, longest = recipe.batch, math.ceil(recipe.words.max_seq_len / STEP) * STEP
    return profile(at(1, STEP), at(batch.optimal, batch.optimal_tokens), at(batch.max, longest))


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


def ensemble(recipe: Text, engine: str) -> str:
    models = recipe.models
    ids, mask, scores = IDS.name, MASK.name, "SCORES"
    where = {ON_CPU: ".", ON_GPU: "; with the network on a GPU."}[engine]
    return pbtxt.config(
        f"A text -> its label, and how sure that is{where}",
        models.ensemble,
        pbtxt.platform("ensemble"),
        recipe.batch.max,
        pbtxt.inputs(QUERY),
        pbtxt.outputs(LABEL, SCORE),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"QUERY": "QUERY"}, {ids: "ids", mask: "mask"}),
            Step(f"{models.network}_{engine}", {ids: "ids", mask: "mask"}, {scores: "scores"}),
            Step(models.postprocessing, {scores: "scores"}, {"LABEL": "LABEL", "SCORE": "SCORE"}),
        ),
    )
