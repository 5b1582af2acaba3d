"""`make status` counts what all of several servers answered, and names another user's server."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scripts.base.errors import UserError
from scripts.server.triton.models import Totals, list_answered
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import local
from scripts.stacks.state import State


def test_all_servers_are_counted() -> None:
    told = [counted(90, 10, 20.0), counted(300, 0, 10.0), counted(0, 0, 0.0)]
    assert [*list_answered("counted", told)] == [
        ("counted, main", "1", "390", "10", "12.5"),
        ("counted_onnx", "1", "195", "0", "12.3"),
    ]


def counted(answered: int, failed: int, ms: float) -> Totals:
    """What a door has counted: so many requests of a pipeline, and of its step half."""
    return {
        ("counted", "1"): {"answered": answered, "failed": failed, "ms": ms},
        ("counted_onnx", "1"): {"answered": answered // 2, "failed": 0, "ms": ms},
    }


def test_a_server_of_another_user_is_not_said_to_be_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keeper.json").touch()
    monkeypatch.setattr(local, "RUN", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root is refused nothing else
    known = cast(State, SimpleNamespace(side=""))
    with pytest.raises(UserError, match="belongs to another user"):
        local.LocalStack(Settings(DEFAULTS)).keeper_state(known)
