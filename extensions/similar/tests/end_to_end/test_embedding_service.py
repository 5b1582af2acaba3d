"""The program that serves embeddings, without the commands around it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bundle_serving.health import reason_not_to_trust
from tests.networks import means
from tests.project import free_ports, wait_until

# Far more than PyTriton would let the other instances wait. Triton itself holds a process for dead
# that is stopped for a second: so it is only its Python that takes its time.
LATE = """
import sys, time
from pathlib import Path

class Late:
    def find_spec(self, name, *_):
        if name == "zmq":
            time.sleep(4)

if "embedding_0_0" in Path("/proc/self/cmdline").read_text().split("\\0"):
    sys.meta_path.insert(0, Late())
"""


@contextmanager
def service(folder: Path, **environment: str) -> Iterator[tuple[psutil.Popen, str]]:
    """The process, and where it is asked; its log is beside what it serves."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bundle_serving.embedding_service", "--port", str(port)]
    command += ["--made", str(means(folder)), "--run-dir", str(folder / "run")]
    with (folder / "log").open("w") as log:
        process = psutil.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | environment
        )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            process.terminate()
        process.wait()


def triton(process: psutil.Popen) -> psutil.Process | None:
    for each in process.children(recursive=True):
        if each.name() == "tritonserver":
            return each
    return None


def test_instances_wait_for_the_first_one(tmp_path: Path) -> None:
    """On a busy machine it may be there last."""
    (tmp_path / "sitecustomize.py").write_text(LATE)
    with service(tmp_path, PYTHONPATH=str(tmp_path)) as (process, url):
        wait_until(
            lambda: process.poll() is not None or reason_not_to_trust(url, "embedding") is None,
            "an embedding, or an end of the service",
        )
        assert process.poll() is None, (tmp_path / "log").read_text()


def test_its_server_has_no_port_and_its_folder_no_guest(tmp_path: Path) -> None:
    with service(tmp_path) as (process, url):
        wait_until(
            lambda: process.poll() is not None or reason_not_to_trust(url, "embedding") is None,
            "an embedding, or an end of the service",
        )
        server = triton(process)
        assert server and not server.net_connections("tcp")
        assert not [word for word in server.cmdline() if "token" in word]
        assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with service(tmp_path) as (process, _):
        wait_until(lambda: process.poll() is not None, "its end")
    assert not (tmp_path / "elsewhere").exists()


def test_a_server_that_dies_while_it_starts_ends_the_service(tmp_path: Path) -> None:
    """Its keeper restarts it, and does not wait for what will never answer."""
    with service(tmp_path) as (process, _):
        wait_until(lambda: triton(process), "a server").kill()
        wait_until(lambda: process.poll() is not None, "its end")
    assert "embedding stopped: its server has exited" in (tmp_path / "log").read_text()
