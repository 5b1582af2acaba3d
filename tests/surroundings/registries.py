"""A registry of images on this machine, Debian's, which Docker trusts without TLS.

with registries.running(folder) as address:
    project.made("images", PUSH=f"{address}/team")
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import docker
from tests.project import free_ports, wait_until

# One with a password knows ann, by "of-the-tests".
ANN = "ann:$2b$04$WLwxqWv/nLcsUEs0sQD9bOibJYGTAmiCOaB03NvQ5a7JyJq0R5l4O"


@contextmanager
def running(folder: Path, with_password: bool = False) -> Iterator[str]:
    if not shutil.which("docker-registry"):
        pytest.skip("no registry here (apt-get install docker-registry)")
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    storage = {"filesystem": {"rootdirectory": str(folder / "data")}}
    config: dict[str, Any] = {"version": 0.1, "storage": storage, "http": {"addr": address}}
    if with_password:
        (folder / "known").write_text(f"{ANN}\n")
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "known")}}
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "log").open("w") as log:
        serving = subprocess.Popen(
            ["docker-registry", "serve", str(folder / "config.json")], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: "listening on" in (folder / "log").read_text(), "the registry")
        yield address
    finally:
        serving.kill()
        serving.wait()
        shutil.rmtree(folder / "data", ignore_errors=True)
        images = docker.from_env().images
        for name in (name for image in images.list() for name in image.tags if address in name):
            images.remove(name)
