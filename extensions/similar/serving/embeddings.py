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
from pytriton.proxy.types import Request

from bundle_serving.health import IMAGE
from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import PictureError, Transform, check_together, to_pixels
from bundle_serving.work import Rows


@dataclass(frozen=True)
class Network:
    """The result of extensions/similar/export.py."""

    file: Path
    name: str  # included in every answer: only vectors of the same network can be compared
    dimensions: int
    transform: dict[str, Any]

    @classmethod
    def load(cls, made: Path) -> Network:
        manifest = json.loads((made / "manifest.json").read_text())
        name = (made / "network.txt").read_text().strip()
        dimensions = manifest["onnx"]["dimensions"]
        return cls(made / "model.onnx", name, dimensions, manifest["transform"])


class Embedder:
    """One instance with its own engine; the decoding pool may be shared."""

    def __init__(self, network: Network, how: Transform, threads: int, pool: Executor) -> None:
        self._network, self._how, self._pool = network, how, pool
        self._engine = Engine(network.file, "fp32", threads)
        self._rows = Rows()
        # OpenVINO's binding initialises itself at the first call and hangs forever if two threads
        # make theirs at once: so each instance makes one here.
        self._run([np.zeros((3, *how.sides), np.uint8)])

    def __call__(self, requests: Sequence[Request]) -> Any:
        refused = [why for each in requests for why in self._refuse_together(each[IMAGE].ravel())]
        return self._embed(requests, refused)

    def _refuse_together(self, files: NDArray[np.object_]) -> list[PictureError | None]:
        """Of one request's pictures; for each."""
        try:
            check_together(files, self._how)
            if reason := self._rows.too_many(len(files)):
                raise PictureError(reason)
        except PictureError as refusal:
            return [refusal] * len(files)
        return [None] * len(files)

    @batch  # type: ignore[untyped-decorator]  # PyTriton comes without types
    def _embed(
        self, refused: Sequence[PictureError | None], image: NDArray[np.object_]
    ) -> dict[str, NDArray[Any]]:
        """An exception would fail all requests of a batch; so a refused picture has its reason in
        `error`, and zeros as its vector."""
        files = image.ravel()
        pending = [
            self._pool.submit(self._decode, *each) for each in zip(files, refused, strict=True)
        ]
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
        names = [self._network.name.encode()] * len(files)
        return {"embedding": vectors, "error": _column(refusals), "network": _column(names)}

    def _decode(self, file: bytes, refused: PictureError | None) -> NDArray[np.uint8]:
        if refused:
            raise refused
        return to_pixels(file, self._how)

    def _run(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        try:
            with self._rows.computing(len(pixels)):
                return self._engine({"input": np.stack(pixels)}, ["embedding"])["embedding"]
        except (RuntimeError, MemoryError) as fault:  # the next batch would fail too
            raise PyTritonUnrecoverableError(f"the engine failed: {fault}") from fault


def _column(texts: Sequence[bytes]) -> NDArray[np.object_]:
    return np.array([[text] for text in texts], np.object_)
