"""Requests with texts, and their answers, on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .wire import not_understood

MODEL = "sentiment_ensemble"


@dataclass(frozen=True, slots=True)
class Sentiment:
    """The sentiment of a text, and its score from 0 to 1."""

    text: str
    label: str
    score: float


def question(tensors: Any, model: str, texts: Sequence[str]) -> dict[str, Any]:
    """The arguments of `infer`, for tritonclient.http as for tritonclient.grpc."""
    import numpy as np

    array = np.array([[text.encode()] for text in texts], np.object_)
    tensor = tensors.InferInput("QUERY", list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array)
    outputs = [tensors.InferRequestedOutput(name) for name in ("LABEL", "SCORE")]
    return {"model_name": model, "inputs": [tensor], "outputs": outputs}


def sentiments(texts: Sequence[str], answer: Any) -> list[Sentiment]:
    labels, scores = answer.as_numpy("LABEL"), answer.as_numpy("SCORE")
    if labels is None or scores is None or not len(labels) == len(scores) == len(texts):
        raise not_understood("no label and score for each text")
    return [
        Sentiment(text, label.decode(errors="replace"), float(score))
        for text, label, score in zip(texts, labels.ravel(), scores.ravel(), strict=True)
    ]
