"""Requests with arrays of pixels, and their answers, on the wire."""

from typing import Any

from .wire import Label, labels_of

MODEL = "places_ensemble"


def question(tensors: Any, model: str, pixels: Any) -> dict[str, Any]:
    """The arguments of `infer`; `pixels` is [height, width, 3], from 0 to 255."""
    import numpy as np

    array = np.asarray(pixels, np.float32)[np.newaxis]
    tensor = tensors.InferInput("INPUT", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    output = tensors.InferRequestedOutput("postprocess_result")
    return {"model_name": model, "inputs": [tensor], "outputs": [output]}


def labels(answer: Any) -> tuple[Label, ...]:
    return labels_of(answer, "postprocess_result")
