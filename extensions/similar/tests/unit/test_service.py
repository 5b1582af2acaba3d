"""The embeddings service's processes."""

import os
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
    monkeypatch.setattr(service, "SHM_PREFIX", f"{tmp_path.name}_{os.getpid()}_")
    left = Path(f"/dev/shm/{service.SHM_PREFIX}region")
    left.touch()
    assert service._stop_processes()
    assert not left.exists()
