"""Image files -> vectors of length 1. No Triton here."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.openvino_engine import MOST_ROWS, Engine
from bundle_serving.pictures import PictureError, Transform, check_together, to_pixels
from bundle_serving.work import Rows


class EngineFailed(Exception):
    """The next batch would fail, too."""


class Embedder:
    """Of one process."""

    def __init__(self, made: Path, how: Transform, threads: int) -> None:
        """`made`: the result of extensions/similar/export.py, also of an earlier release's."""
        # Included in every answer: only vectors of the same network can be compared.
        self._name = (made / "network.txt").read_text().strip().encode()
        self._how, self._pool = how, ThreadPoolExecutor(threads)
        self._engine, self._rows = Engine(made / "model.onnx", "fp32", threads), Rows()
        self._dimensions = self._run([np.zeros((3, *how.sides), np.uint8)]).shape[1]

    def __call__(self, requests: Sequence[NDArray[np.object_]]) -> list[dict[str, NDArray[Any]]]:
        """An exception would fail all requests of a batch; so a refused picture has its reason in
        `error`, and zeros as its vector."""
        refused = [why for files in requests for why in self._refuse_together(files)]
        files = np.concatenate(requests)
        pending = [
            self._pool.submit(self._decode, *each) for each in zip(files, refused, strict=True)
        ]
        vectors = np.zeros((len(files), self._dimensions), np.float32)
        refusals = [b""] * len(files)
        pixels: dict[int, NDArray[np.uint8]] = {}
        for row, picture in enumerate(pending):
            try:
                pixels[row] = picture.result()
            except PictureError as refusal:
                refusals[row] = str(refusal).encode()
        if pixels:
            vectors[list(pixels)] = self._run(list(pixels.values()))
        names = [self._name] * len(files)
        found = {"embedding": vectors, "error": _column(refusals), "network": _column(names)}
        ends = np.cumsum([len(each) for each in requests])[:-1]
        parts = zip(*(np.split(each, ends) for each in found.values()), strict=True)
        return [dict(zip(found, each, strict=True)) for each in parts]

    def _refuse_together(self, files: NDArray[np.object_]) -> list[PictureError | None]:
        """Of one request's pictures; for each."""
        try:
            check_together(files, self._how)
            if reason := self._rows.too_many(len(files)):
                raise PictureError(reason)
        except PictureError as refusal:
            return [refusal] * len(files)
        return [None] * len(files)

    def _decode(self, file: bytes, refused: PictureError | None) -> NDArray[np.uint8]:
        if refused:
            raise refused
        return to_pixels(file, self._how)

    def _run(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        try:
            with self._rows.computing(len(pixels)):
                parts = np.split(np.stack(pixels), range(MOST_ROWS, len(pixels), MOST_ROWS))
                return np.concatenate([self._engine.only_output({"input": each}) for each in parts])
        except (RuntimeError, MemoryError) as fault:
            raise EngineFailed(f"the engine failed: {fault}") from fault


def _column(texts: Sequence[bytes]) -> NDArray[np.object_]:
    return np.array([[text] for text in texts], np.object_)
