"""The server of embeddings, without the commands around it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bundle_keeper.afresh import START_FAILED
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes
from extensions.similar import service
from scripts.settings.settings import DEFAULTS, Settings
from tests.door.servers import KEY, removed_afterwards
from tests.networks import means
from tests.project import free_ports, wait_until


@contextmanager
def serve(folder: Path) -> Iterator[tuple[psutil.Popen, str]]:
    """Its guard, and where it is asked; its log is beside what it serves."""
    (folder / "admin.key").write_text(KEY)
    (folder / keeper_notes.BESIDE).write_text('["mine"]')  # what the main server has loaded
    service.lay_out(means(folder), Settings(DEFAULTS), folder / "models")
    (port,) = free_ports(1)
    regions = f"similar{os.getpid()}_{port}_"
    command = [sys.executable, "-m", "bundle_keeper.afresh", "--go-on"]
    command += [sys.executable, "-m", "bundle_keeper", "--run-dir", str(folder / "run")]
    command += ["--repository", str(folder / "models"), "--load-model", service.MODEL]
    command += ["--admin-key-file", str(folder / "admin.key"), "--shm-prefix", regions]
    command += ["--http-port", str(port), "--grpc-port", "0", "--metrics-port", "0"]
    with removed_afterwards(regions), (folder / "log").open("w") as log:
        guard = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield guard, f"http://127.0.0.1:{port}"
        finally:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                guard.terminate()
            guard.wait()


def triton(guard: psutil.Process) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        for each in guard.children(recursive=True):
            if each.name() == "tritonserver":
                return each
    return None


def wait_for_answer(guard: psutil.Popen, url: str) -> None:
    wait_until(
        lambda: guard.poll() is not None or reason_not_to_trust(url, service.MODEL) is None,
        "an embedding, or an end of the service",
    )


def test_its_server_has_no_port_and_its_folder_no_guest(tmp_path: Path) -> None:
    sockets = tmp_path / "run" / "sockets"
    with serve(tmp_path) as (guard, url):
        wait_for_answer(guard, url)
        server = triton(guard)
        assert server and not server.net_connections("tcp")
        assert not [word for word in server.cmdline() if "token" in word]
        assert sockets.stat().st_mode & 0o777 == 0o700
        listening = {
            each.laddr.port
            for process in (guard, *guard.children(recursive=True))
            for each in process.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN
        }
        assert listening == {int(url.rpartition(":")[2])}
    (tmp_path / "elsewhere").mkdir()
    for each in sockets.iterdir():
        each.unlink()
    sockets.rmdir()
    sockets.symlink_to(tmp_path / "elsewhere")
    with serve(tmp_path) as (guard, _):
        wait_until(lambda: guard.poll() is not None, "its end")
        assert guard.returncode == START_FAILED
    assert "only this user can open" in (tmp_path / "log").read_text()
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_server_that_dies_while_it_starts_is_no_service_that_waits(tmp_path: Path) -> None:
    """Its command does not wait for what will never answer."""
    with serve(tmp_path) as (guard, _):
        wait_until(lambda: triton(guard), "a server").kill()
        wait_until(lambda: guard.poll() is not None, "its end")
        assert guard.returncode == START_FAILED
    assert "the server had exited (SIGKILL)" in (tmp_path / "log").read_text()


def test_a_server_that_dies_comes_back(tmp_path: Path) -> None:
    with serve(tmp_path) as (guard, url):
        wait_for_answer(guard, url)
        # Its keeper has seen it, too.
        wait_until(lambda: keeper_notes.read(tmp_path / "run").get("ready"), "the keeper")
        first = triton(guard)
        assert first
        first.kill()
        wait_until(lambda: (now := triton(guard)) and now != first, "another server")
        wait_for_answer(guard, url)
        assert guard.poll() is None
    assert "could not load" not in (tmp_path / "log").read_text()
