"""What every service here does with a picture: the usual Pillow code, and the bundle's network.

The network is the very file that the bundle serves, run by the same engine with the same precision,
a process a core; so what differs is the service around it.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bundle_serving.openvino_engine import Engine
from bundle_serving.scores import softmax

# Names a file with the words below; a service's only setting.
SETUP = "RIVAL_SETUP"

# OpenVINO's own choice, which hardly anyone changes. One thread a process is slower at one request
# at a time, and about as fast at four.
ALL_CORES = 0


@dataclass(frozen=True)
class Setup:
    network: str  # the ONNX file
    precision: str
    labels: list[str]
    resize: int
    crop: int
    workers: int
    draft: bool  # decode JPEGs from as few pixels as the bundle does

    @classmethod
    def load(cls) -> Setup:
        return cls(**json.loads(Path(os.environ[SETUP]).read_text()))

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


class Classifier:
    def __init__(self) -> None:
        self.setup = Setup.load()
        self.engine = Engine(Path(self.setup.network), self.setup.precision, ALL_CORES)

    def pixels(self, picture: bytes | Image.Image) -> NDArray[np.uint8]:
        if not isinstance(picture, Image.Image):
            picture = Image.open(io.BytesIO(picture))
        if self.setup.draft:
            picture.draft(None, (2 * self.setup.resize, 2 * self.setup.resize))
        image = picture.convert("RGB")
        scale = self.setup.resize / min(image.size)
        width, height = round(image.width * scale), round(image.height * scale)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - self.setup.crop) // 2, (height - self.setup.crop) // 2
        image = image.crop((left, top, left + self.setup.crop, top + self.setup.crop))
        return np.asarray(image).transpose(2, 0, 1)[None]

    def answer(self, pixels: NDArray[np.uint8]) -> dict[str, Any]:
        scores = self.engine({"input": np.ascontiguousarray(pixels)}, ["output"])["output"]
        probabilities = softmax(scores.astype(np.float32))[0]
        top = int(probabilities.argmax())
        return {"label": self.setup.labels[top], "probability": float(probabilities[top])}

    def classify(self, picture: bytes | Image.Image) -> dict[str, Any]:
        return self.answer(self.pixels(picture))
