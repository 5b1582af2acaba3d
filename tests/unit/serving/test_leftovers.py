"""What a killed server leaves is taken away, and nothing that may be another's."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_serving.process import processes

LOADED = """
import mmap, sys
with open(sys.argv[1]) as file:
    loaded = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("loaded", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[None]:
    """A process with Triton's Python backend, as its mapped files show it."""
    backend = tmp_path / processes.BACKEND
    backend.write_text("a library")
    command = [sys.executable, "-c", LOADED, str(backend)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.usefixtures("server")
def test_only_what_no_running_server_can_have_made_is_removed(tmp_path: Path) -> None:
    region = Path("/dev/shm") / f"{tmp_path.name}_{os.getpid()}_region"
    region.touch()
    cannot_go = region.with_name(f"{region.name}s")  # as what is another user's
    cannot_go.mkdir()
    for name, ago in {"old": 1e6, "full": 1e6, "young": 0}.items():
        folder = tmp_path / f"python_env_{name}"
        folder.mkdir()
        if name == "full":
            (folder / "file").touch()
        os.utime(folder, (time.time() - ago,) * 2)
    processes.remove_leftovers(region.name[:-6], tmp_path)
    cannot_go.rmdir()
    assert not region.exists()
    assert {path.name for path in tmp_path.glob("python_env_*")} == {
        "python_env_full",
        "python_env_young",
    }
