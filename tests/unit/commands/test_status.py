"""`make status` counts what all of several servers answered, and names another user's server."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scripts.artefacts.workspace import FOREST, Workspace
from scripts.base import lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU, GPU
from scripts.repository.archive import Version
from scripts.repository.history import Event
from scripts.server.served import describe_engine, explain_cut_off
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


def test_what_has_neither_a_plan_nor_a_decision_is_described(tmp_path: Path) -> None:
    """As a function or trees, which may be the main pipeline."""
    made = Workspace(tmp_path)
    on_a_gpu, on_a_cpu = (
        cast(Version, SimpleNamespace(workspace=made, engine=engine)) for engine in (GPU, CPU)
    )
    assert describe_engine(on_a_gpu) is describe_engine(on_a_cpu) is None
    made.onnx.mkdir()
    (made.onnx / FOREST).touch()
    assert "FIL" in (describe_engine(on_a_gpu) or "")


def test_a_switch_that_did_not_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the server may answer with a version that the history does not call live."""
    monkeypatch.setattr(lock, "OF_CHANGES", tmp_path / "lock")
    main, cut = pipelines.main(), Event("", "begins", 3, "rollout")
    assert explain_cut_off(main, cut) == (
        "make rollout of version 3 was interrupted, and it may be what answers; to recover: make up"
    )
    with lock.one_at_a_time(lock.OF_CHANGES):
        assert "of version 3 is under way (process" in explain_cut_off(main, cut)
