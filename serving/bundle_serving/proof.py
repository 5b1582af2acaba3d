"""Before a server is asked by anyone: does it answer as PyTorch did, on this machine too?

The file has requests, PyTorch's scores for them, how those are read, and how far an answer may be
from them; scripts/repository/proof.py writes it.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.address import Address
from bundle_serving.agreement import Bound, compared

LENGTH = "Inference-Header-Content-Length"
INPUT, OUTPUT = "INPUT", "OUTPUT"


def refusal(at: Address, model: str, file: Path) -> str | None:
    """None if its answers are within the bound."""
    with np.load(file) as kept:
        scores, reading = kept["scores"], str(kept["reading"])
        bound = Bound(float(kept["difference"]), float(kept["top1"]))
        pictures = [kept[f"{number}:{INPUT}"].tobytes() for number in range(len(scores))]
    answers = np.stack([_ask(at, model, each) for each in pictures])
    if answers.shape != scores.shape:
        return f"it knows {answers.shape[1]} classes instead of {scores.shape[1]}"
    seen = compared(scores, np.nan_to_num(answers, nan=np.inf), reading)
    return None if seen.within(bound) else f"its answers differ from PyTorch's ({seen}; {bound})"


def _ask(at: Address, model: str, picture: bytes) -> NDArray[Any]:
    request = urllib.request.Request(
        f"{at.url}/v2/models/{model}/infer",
        picture,
        {LENGTH: "0", "Cache-Control": "no-cache", "bundle-check": "1"},
    )
    with at.open(request, timeout=60) as answer:
        body, place = answer.read(), int(answer.headers[LENGTH])
    for tensor in json.loads(body[:place])["outputs"]:
        size = tensor["parameters"]["binary_data_size"]
        if tensor["name"] == OUTPUT:
            return np.frombuffer(body[place : place + size], np.float32)
        place += size
    raise ValueError(f"{model} has no output {OUTPUT}")
