"""The program that serves embeddings, without the commands around it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bundle_serving.health import reason_not_to_trust
from tests.networks import means
from tests.project import free_ports, wait_until

# Far more than PyTriton would let one instance wait for the other.
LATE_S = 4


def instance(service: psutil.Process, number: int) -> psutil.Process | None:
    """The python stub of an instance, which is told its name."""
    for each in service.children(recursive=True):
        if f"embedding_0_{number}" in each.cmdline():
            return each
    return None


@pytest.mark.long
def test_instances_wait_for_the_first_one(tmp_path: Path) -> None:
    """On a busy machine it may be there last."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bundle_serving.embedding_service", "--port", str(port)]
    command += ["--made", str(means(tmp_path)), "--run-dir", str(tmp_path / "run")]
    with (tmp_path / "log").open("w") as log:
        service = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        first = wait_until(lambda: instance(service, 0), "the first instance")
        first.suspend()
        wait_until(lambda: instance(service, 1), "the second one")
        time.sleep(LATE_S)
        first.resume()
        url = f"http://127.0.0.1:{port}"
        wait_until(
            lambda: service.poll() is not None or reason_not_to_trust(url, "embedding") is None,
            "an embedding, or an end of the service",
        )
        assert service.poll() is None, (tmp_path / "log").read_text()
    finally:
        service.terminate()
        service.wait()
