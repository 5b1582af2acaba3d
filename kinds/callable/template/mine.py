"""Texts -> how many words each has: a function in a file of your own.

make add-callable FILE=mine.py
make ask MODEL=mine INPUTS='{"text": "What a day!"}'
"""

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor


@batch
def mine(text):
    """A batch: in each row one text, as bytes."""
    counts = [len(row.decode().split()) for (row,) in text]
    return {"words": np.array(counts, np.int32)[:, None]}


def bind(triton):
    """Several functions may be bound, each to a name of its own."""
    triton.bind(
        model_name="mine",
        infer_func=mine,  # or a list: one for each process
        inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
        outputs=[Tensor(name="words", dtype=np.int32, shape=(1,))],
        config=ModelConfig(max_batch_size=16),
        strict=True,
    )


# What it must answer to be loaded, and from time to time while it serves.
EXAMPLES = {"mine": {"text": "What a day!"}}
