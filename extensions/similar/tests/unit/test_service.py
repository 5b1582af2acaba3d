"""The embeddings service's processes."""

import subprocess
from pathlib import Path

import psutil
import pytest

from extensions.similar import service


def test_who_has_ended_meanwhile_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where two commands stop it at once."""
    program = subprocess.Popen(["true"])
    ended = psutil.Process(program.pid)
    program.wait()
    monkeypatch.setattr(service, "RUN", tmp_path / "run")
    monkeypatch.setattr(psutil, "process_iter", lambda: [ended])
    monkeypatch.setattr(service, "_list_words", lambda _: [service.KEEPER, str(service.RUN)])
    assert service._stop_processes()
