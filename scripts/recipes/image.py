"""The pipeline of pictures: its recipe -> the models' config.pbtxt. Pure functions on text."""

from __future__ import annotations

from scripts.recipes import pbtxt
from scripts.recipes.pbtxt import BATCHES_FORM_THEMSELVES, NEWEST_VERSION, Step, Tensor
from scripts.recipes.schema import Image

ON_CPU, ON_GPU = "onnx", "trt"  # how the network's two folders end


def configs(recipe: Image, warmup_bytes: int) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.preprocessing}/config.pbtxt": preprocessing(recipe, warmup_bytes),
        f"{models.preprocessing}_dali/config.pbtxt": preprocessing_on_gpu(recipe, warmup_bytes),
        f"{models.network}_{ON_CPU}/config.pbtxt": network(recipe),
        f"{models.network}_{ON_GPU}/config.pbtxt": network_on_gpu(recipe),
        f"{models.postprocessing}/config.pbtxt": postprocessing(recipe),
        f"{models.ensemble}/config.pbtxt": ensemble(recipe, ON_GPU),
        f"{models.ensemble}/configs/cpu.pbtxt": ensemble(recipe, ON_CPU),
    }


def shared(recipe: Image) -> dict[str, str]:
    models = recipe.models
    return {
        "preprocessing": models.preprocessing,
        "preprocessing_dali": f"{models.preprocessing}_dali",
        "postprocessing": models.postprocessing,
    }


def _file(name: str, length: int = -1) -> Tensor:
    ragged = "image files of different lengths share a batch"
    return Tensor(name, "UINT8", [length], ragged=ragged)


def _pixels(name: str, recipe: Image) -> Tensor:
    return Tensor(name, "UINT8", [3, recipe.pictures.crop, recipe.pictures.crop])


def _scores(name: str, recipe: Image) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Image, warmup_bytes: int) -> str:
    return pbtxt.config(
        "The bytes of an image file -> uint8 pixels, resized and cropped as the network was"
        " trained.\nCast and normalisation are the first nodes of the network's own graph.",
        recipe.models.preprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(_file("INPUT_0")),
        pbtxt.outputs(_pixels("OUTPUT_0", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        BATCHES_FORM_THEMSELVES,
        _warm_picture(recipe, warmup_bytes),
        pbtxt.parameter("threads", "1"),
    )


def preprocessing_on_gpu(recipe: Image, warmup_bytes: int) -> str:
    return pbtxt.config(
        "The bytes of an image file -> uint8 pixels, decoded and resized on the GPU:"
        " PREPROCESS=dali.",
        f"{recipe.models.preprocessing}_dali",
        pbtxt.backend("dali") + '\ndefault_model_filename: "dali.py"',
        recipe.batch.max,
        pbtxt.inputs(_file("INPUT_0")),
        pbtxt.outputs(_pixels("OUTPUT_0", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(
            1,
            "GPU",
            "One: each takes GPU memory of its own, and keeps the GPU's decoder busy by itself.",
        ),
        BATCHES_FORM_THEMSELVES,
        _warm_picture(recipe, warmup_bytes),
        pbtxt.parameter("num_threads", "4"),
    )


def _warm_picture(recipe: Image, length: int) -> str:
    name = recipe.warmup
    return pbtxt.warmup(name.partition(".")[0], pbtxt.file(_file("INPUT_0", length), name))


def network(recipe: Image) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.config(
        "The network: pixels -> scores. In an NGC server the C++ ONNX Runtime backend runs this;"
        " in the\nPyPI server serving/bundle_serving/backends/onnxruntime does.",
        f"{recipe.models.network}_{ON_CPU}",
        pbtxt.backend("onnxruntime"),
        recipe.batch.max,
        *pbtxt.picture_network(pixels, _scores("output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.network, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        pbtxt.parameter("threads", "1"),
    )


def network_on_gpu(recipe: Image) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.config(
        "The network on a GPU: a TensorRT plan, pixels -> scores.",
        f"{recipe.models.network}_{ON_GPU}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        *pbtxt.picture_network(pixels, _scores("output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(
            recipe.instances.network_on_gpu,
            "GPU",
            "One copies while the other computes.",
        ),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        "optimization { cuda { graphs: true } }",
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
    )


def postprocessing(recipe: Image) -> str:
    scores = _scores("INPUT_0", recipe)
    return pbtxt.config(
        "The network's scores -> probabilities.",
        recipe.models.postprocessing,
        pbtxt.backend("python"),
        recipe.batch.max,
        pbtxt.inputs(scores),
        pbtxt.outputs(_scores("OUTPUT_0", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(1, "CPU"),
        BATCHES_FORM_THEMSELVES,
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
    )


def ensemble(recipe: Image, engine: str) -> str:
    models = recipe.models
    where = {ON_CPU: ".", ON_GPU: "; with the network on a GPU."}[engine]
    return pbtxt.config(
        f"The bytes of an image file -> the probability of each class{where}",
        models.ensemble,
        pbtxt.platform("ensemble"),
        recipe.batch.max,
        pbtxt.inputs(Tensor("INPUT", "UINT8", [-1])),
        pbtxt.outputs(Tensor("OUTPUT", "FP32", [recipe.classes], labels=pbtxt.LABELS)),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
            Step(f"{models.network}_{engine}", {"input": "pixels"}, {"output": "scores"}),
            Step(models.postprocessing, {"INPUT_0": "scores"}, {"OUTPUT_0": "OUTPUT"}),
        ),
    )
