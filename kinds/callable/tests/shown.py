"""What its commands show: tests/shown/every.py."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from kinds.callable.recipe import Function


def ask() -> None:
    recipe: Any = SimpleNamespace(
        ensemble="words", read_question=lambda _: {}, _answers=lambda answer: [answer]
    )
    server: Any = SimpleNamespace(address=None)
    with patch("kinds.callable.recipe.ask_tensors", lambda *_: [{"words": np.array([3])}]):
        Function.ask(recipe, server, [], {})


SHOWN = {"ask: of a function": ask}
NOTES_ALONE = {"add-callable": "what was written, or is served; the answers are JSON"}
