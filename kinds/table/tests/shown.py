"""What its command shows: tests/shown/every.py."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from kinds.table import adoption


def show(classes: tuple[str, ...]) -> None:
    """Of two rows; without classes, their values."""
    count = len(classes) or 1
    answer = {"OUTPUT": np.linspace(0.001, 0.789, 2 * count, dtype=np.float32).reshape(2, -1)}
    made = adoption.make_recipe("flowers", Path("flowers.json"), {})
    made = made.model_copy(update={"width": 2, "classes": classes, "values": count})
    server: Any = SimpleNamespace(address=None)
    with patch("kinds.table.recipe.ask_tensors", lambda *_: [answer]):
        made.ask(server, [], {})


def ask() -> None:
    show(("setosa", "versicolor", "virginica"))
    show(())


def ask_many() -> None:
    """More columns than fit."""
    show(tuple(f"the iris number {number}" for number in range(12)))


SHOWN = {"ask": ask, "ask: of many classes": ask_many}
