"""Image files -> vectors of length 1: the plain Python callable that PyTriton serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonUnrecoverableError

from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import PictureError, Transform, to_pixels


@dataclass(frozen=True)
class Network:
    """What scripts/steps/embeddings.py leaves."""

    file: Path
    said: str  # that every answer says it is of: only vectors of one network can be compared
    dimensions: int
    transform: dict[str, Any]

    @classmethod
    def load(cls, made: Path) -> Network:
        manifest = json.loads((made / "manifest.json").read_text())
        said = (made / "network.txt").read_text().strip()
        dimensions = manifest["onnx"]["dimensions"]
        return cls(made / "model.onnx", said, dimensions, manifest["transform"])


class Embedder:
    """One instance, with an engine of its own; the pool that decodes may be that of all."""

    def __init__(self, network: Network, how: Transform, threads: int, pool: Executor) -> None:
        self._network, self._how, self._pool = network, how, pool
        self._engine = Engine(network.file, "fp32", threads)
        # OpenVINO's binding makes up its mind at the first call, and hangs for good where two
        # threads make theirs at once: so each instance makes it here.
        self._run([np.zeros((3, how.crop, how.crop), np.uint8)])

    @batch  # type: ignore[untyped-decorator]  # PyTriton comes without types
    def __call__(self, image: NDArray[np.object_]) -> dict[str, NDArray[Any]]:
        """What an exception says, all requests of a batch are told, and none gets an answer: a
        picture that is refused has its reason in `error`, and zeros for a vector."""
        files = image.ravel()
        pending = [self._pool.submit(to_pixels, file, self._how) for file in files]
        vectors = np.zeros((len(files), self._network.dimensions), np.float32)
        refusals = [b""] * len(files)
        pixels: dict[int, NDArray[np.uint8]] = {}
        for row, picture in enumerate(pending):
            try:
                pixels[row] = picture.result()
            except PictureError as refusal:
                refusals[row] = str(refusal).encode()
        if pixels:
            vectors[list(pixels)] = self._run(list(pixels.values()))
        said = [self._network.said.encode()] * len(files)
        return {"embedding": vectors, "error": _column(refusals), "network": _column(said)}

    def _run(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        try:
            return self._engine({"input": np.stack(pixels)}, ["embedding"])["embedding"]
        except (RuntimeError, MemoryError) as fault:  # the next batch would meet the same
            raise PyTritonUnrecoverableError(f"the engine failed: {fault}") from fault


def _column(texts: Sequence[bytes]) -> NDArray[np.object_]:
    return np.array([[text] for text in texts], np.object_)
