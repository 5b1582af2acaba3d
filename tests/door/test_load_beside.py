"""What NVIDIA's server is given after its start, in the place of a keeper: on the other Triton."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from pathlib import Path

from bundle_serving import guard, sockets
from bundle_serving.hidden_arguments import PLACE
from tests.door.servers import KEY, MODELS, process, removed_afterwards, triton_command
from tests.project import free_ports, wait_until


def is_loaded(server: str, model: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(f"{server}/v2/models/{model}/ready").status == 200)
    return False


def test_what_was_live_is_loaded_after_the_main_pipeline(tmp_path: Path) -> None:
    """Whatever cannot be loaded keeps nothing else away."""
    (port,) = free_ports(1)
    regions, server = f"beside{port}_", f"http://127.0.0.1:{port}"
    folder = sockets.folder(tmp_path)
    command = triton_command(tmp_path, folder, MODELS, ["picture"], regions)
    command[-2:] = ["--http-address=127.0.0.1", f"--http-port={port}"]
    command += [option.replace(PLACE, KEY) for option in guard.OPTIONS]
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    load = [sys.executable, "-m", "bundle_serving.load_beside", f"--http-port={port}"]
    load += [f"--admin-key-file={key_file}", "echo", "gone", "text"]
    # It waits for the server, which is started after it.
    loading = subprocess.Popen(load, stderr=subprocess.PIPE, text=True)
    with removed_afterwards(regions), process(command, tmp_path):
        told = loading.communicate(timeout=300)[1]
        wait_until(lambda: is_loaded(server, "picture"), "the main pipeline")
        assert is_loaded(server, "echo") and is_loaded(server, "text")
    assert loading.returncode == 0
    assert [line.partition("start: ")[2].split(":")[0] for line in told.splitlines()] == [
        "loaded echo",
        "could not load gone",
        "loaded text",
    ]
