"""The embeddings service's processes."""

import os
import subprocess
from argparse import Namespace
from pathlib import Path

import psutil
import pytest

from bundle_door.__main__ import arguments
from bundle_door.settings import NOTHING
from extensions.similar import service
from extensions.similar.serving import embedding_service


def test_who_has_ended_meanwhile_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where two commands stop it at once."""
    program = subprocess.Popen(["true"])
    ended = psutil.Process(program.pid)
    program.wait()
    monkeypatch.setattr(service, "RUN", tmp_path / "run")
    monkeypatch.setattr(psutil, "process_iter", lambda: [ended])
    monkeypatch.setattr(service, "list_words", lambda _: [service.KEEPER, str(service.RUN)])
    monkeypatch.setattr(service, "SHM_PREFIX", f"{tmp_path.name}_{os.getpid()}_")
    left = Path(f"/dev/shm/{service.SHM_PREFIX}region")
    left.touch()
    assert service._stop_processes()
    assert not left.exists()


def test_it_keeps_no_pictures_where_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEP", "1%")
    given = Namespace(address="127.0.0.1", port=8010, admin_key_file=None)
    words = embedding_service.door(given)
    assert arguments().parse_args(["--run-dir=/run", *words]).keep == NOTHING
