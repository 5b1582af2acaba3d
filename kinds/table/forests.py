"""Models of trees -> treelite's checkpoint, which Triton's FIL backend runs on a GPU.

A checkpoint, whichever library a model is of: all versions of a pipeline share one config, which
says in which format their files are. Followed: triton-inference-server/fil_backend, branch r26.06.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError

if TYPE_CHECKING:  # which imports all of their libraries
    from kinds.table.originals import Original

ELSEWHERE = "serve it with FLAVOUR=cpu or FLAVOUR=local"
MULTICLASS = 2  # treelite's TaskType::kMultiClf


def convert_forest(original: Original, name: str) -> Any:
    try:
        forest = original.as_forest()
    except Exception as fault:  # of treelite and of three libraries, each with its own
        message = " ".join(str(fault).split())[:200]
        raise UserError(
            f"{name} cannot be served on a GPU, where trees alone are: {message}",
            ELSEWHERE,
        ) from None
    header = forest.get_header_accessor()
    if header.get_field("num_target")[0] != 1:
        raise UserError(
            f"{name} gives several values, which Triton's FIL backend does not", ELSEWHERE
        )
    _give_probabilities(header)
    return forest


def _give_probabilities(header: Any) -> None:
    """As the backend does when it loads one (src/tl_model.h), so that what is checked here is what
    answers there."""
    if header.get_field("task_type")[0] == MULTICLASS:
        grown_apart = header.get_field("leaf_vector_shape")[1] == 1
        header.set_field("postprocessor", "softmax" if grown_apart else "identity_multiclass")


def answers(forest: Any, rows: NDArray[np.float32], values: int) -> NDArray[np.float32]:
    """By treelite's own arithmetic, which is the backend's on a CPU."""
    import treelite

    found = treelite.gtil.predict(forest, rows).reshape(len(rows), -1).astype(np.float32)
    of_two = values == 2 and found.shape[1] == 1
    return np.concatenate([1 - found, found], axis=1) if of_two else found
