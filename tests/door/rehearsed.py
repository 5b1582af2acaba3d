"""The door of the gpu flavour, in its rehearsal, with the same small models beside its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmark.torture.subject import Subject
from bundle_serving.process import sockets
from bundle_serving.process.exposure import CERTIFICATE
from bundle_serving.process.guard import HEADER
from scripts.base import files
from tests.door.servers import MODELS, Asked
from tests.project import Project
from tests.stand_ins import rehearse

ON_A_GPU = pytest.param("on_a_gpu", marks=pytest.mark.rare)
on_a_gpu_too = pytest.mark.parametrize("server", ["by_processes", ON_A_GPU], indirect=True)

LOADED = "echo", "picture", "text", "boxes", "areas"


@dataclass(kw_only=True)
class Rehearsed(Asked):
    """In containers: one that holds the ports, and one with the door and Triton."""

    project: Project

    def roots(self) -> list[int]:
        running = Subject(self.project.root(), self.project.http, self.project.grpc).running()
        pids = [running[name][0].pid for name in ("door", "server")]
        return [*pids, self.project.root("ports")]

    def envoys(self) -> list[Path]:
        folders = {"server": "run/triton", "ports": "tmp"}
        return [
            Path(f"/proc/{self.project.root(service)}/root/{folder}")
            / sockets.USUAL
            / sockets.ENVOY_ADMIN
            for service, folder in folders.items()
        ]


@contextmanager
def behind_the_door_of_a_gpu(folder: Path) -> Iterator[Rehearsed]:
    with rehearse(folder) as project:
        project.made("up")
        ports = (int(project.settings[f"{name}_PORT"]) for name in ("HTTP", "GRPC", "METRICS"))
        http_port, grpc_port, metrics_port = ports
        server = Rehearsed(
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            admin_key=project.admin_key,
            key_file=project.path / "build" / "key" / "api.keys",
            project=project,
        )
        load_small_models(server)
        yield server


@contextmanager
def opened(server: Rehearsed, **settings: str) -> Iterator[Rehearsed]:
    """To other machines, until the block ends; whoever is in its key file may ask."""
    project = server.project
    try:
        project.made("up", BIND="0.0.0.0", **settings)
        guarded = replace(server, tls=project.path / "build" / "tls" / CERTIFICATE)
        load_small_models(guarded)
        yield guarded
    finally:
        project.made("up")
        load_small_models(server)


def load_small_models(server: Rehearsed) -> None:
    headers = {HEADER: server.admin_key, "authorization": f"Bearer {server.admin_key}"}
    for name in LOADED:
        lay_out(MODELS / name, server.project.path / "build" / "live" / name)
        load = "POST", f"/v2/repository/models/{name}/load", b"{}"
        status, _, answer = server.ask(*load, headers)
        assert status == 200, answer


def lay_out(model: Path, place: Path) -> None:
    """Whole at once: the server looks."""
    with files.whole_folder(place) as draft:
        shutil.copytree(model, draft, dirs_exist_ok=True)
