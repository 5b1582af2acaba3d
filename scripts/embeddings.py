"""A plain Python callable as a Triton model: texts -> vectors of length 1. Runs until Ctrl-C.

make embeddings [EMBEDDINGS_PORT=8010]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# The store for large tensors starts a process of its own from inside Triton's interpreter; ours are
# small, and go by the socket.
os.environ["PYTRITON_NO_TENSORSTORE"] = "1"

import numpy as np
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from bundle_serving.openvino_engine import Engine
from bundle_serving.texts import TextRecipe, to_texts, to_tokens
from scripts import bootstrap
from scripts.bootstrap import ROOT
from scripts.errors import guarded
from scripts.host import beside, console, lock, settings
from scripts.host.settings import Settings
from scripts.texts.encoder import LONGEST

MADE = ROOT / "build" / "encoder"
MODEL = "embedding"
DIMENSIONS = 384
INSTANCES = 2


class Embedder:
    """One instance, with an engine of its own."""

    def __init__(self, made: Path, threads: int) -> None:
        self.engine = Engine(made / "model.onnx", "fp32", threads)
        self.tokenizer = TextRecipe(made.name, "", LONGEST).tokenizer(made.parent)

    @batch  # type: ignore[untyped-decorator]  # PyTriton comes without types
    def __call__(self, text: NDArray[np.object_]) -> dict[str, NDArray[np.float32]]:
        tokens = to_tokens(to_texts(text), self.tokenizer)
        try:
            vectors: Any = self.engine(tokens, ["EMBEDDING"])["EMBEDDING"]
        except RuntimeError as fault:  # the engine's: the next batch would meet the same
            raise PyTritonUnrecoverableError(str(fault)) from fault
        return {"embedding": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}


def main() -> int:
    wished = settings.load()
    with lock.one_at_a_time():
        _prepare()
    serve(wished)
    return 0


def _prepare() -> None:
    if (MADE / "model.onnx").exists():
        return
    for layer in ("sentiment", "minilm"):
        bootstrap.ensure(layer)
    beside.make("scripts.texts.encoder", "--out", MADE)


def serve(wished: Settings) -> None:
    address, port = wished["BIND"], wished.number("EMBEDDINGS_PORT")
    threads = max(1, wished.cores // INSTANCES)
    listen = TritonConfig(
        http_address=address, http_port=port, allow_grpc=False, allow_metrics=False
    )
    with Triton(config=listen) as triton:
        triton.bind(
            model_name=MODEL,
            infer_func=[Embedder(MADE, threads) for _ in range(INSTANCES)],
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="embedding", dtype=np.float32, shape=(DIMENSIONS,))],
            config=ModelConfig(
                max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=500)
            ),
            strict=True,
        )
        console.note(f"serving {MODEL} on http://{address}:{port}; Ctrl-C ends it")
        triton.serve()


if __name__ == "__main__":
    sys.exit(guarded(main))
