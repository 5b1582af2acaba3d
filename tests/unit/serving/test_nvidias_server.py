"""What differs where tritonserver is NVIDIA's own."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bundle_keeper import watch
from bundle_keeper.watch import Watch
from bundle_serving.process import start_server
from bundle_serving.protocol.kserve import pb

types = pb.model__config__pb2


@pytest.fixture(autouse=True)
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tritonserver").touch()
    monkeypatch.setattr(start_server, "NGC", tmp_path)
    return tmp_path


def test_it_does_not_see_the_packages_of_the_door(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NVIDIA's DALI is found, it looks."""
    monkeypatch.setenv("PYTHONPATH", f"{start_server.OF_THE_DOOR}:/dali")
    binary, backends, environment = start_server.prepare_server(image / "run")
    assert (binary, backends) == (image / "bin" / "tritonserver", image / "backends")
    assert environment["PYTHONPATH"] == "/dali"


class Loaded:
    """A plan, and a step in Python with two processes."""

    async def states(self) -> dict[tuple[str, str], str]:
        return {("plan", "1"): "READY", ("step", "1"): "READY"}

    async def config(self, model: str, version: str = "") -> Any:
        backend = "tensorrt" if model == "plan" else "python"
        config = types.ModelConfig(name=model, backend=backend)
        config.instance_group.add(name=f"{model}_0", count=2)
        return config


def test_a_plan_lacks_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes in the server itself."""

    async def look(there: int) -> set[str]:
        seen = [SimpleNamespace(instance=("step_0", "1"))] * there
        monkeypatch.setattr(watch, "family", lambda _: seen)
        nobody = cast(Any, SimpleNamespace(pid=1))
        others = nobody, nobody, nobody, nobody
        watched = Watch("main", nobody, cast(Any, Loaded()), *others, Path(), print)
        monkeypatch.setattr(watched, "_members", _has_no_members)
        return await watched._lacking()

    assert asyncio.run(look(2)) == set()
    assert asyncio.run(look(1)) == {"step"}


async def _has_no_members(pipeline: str) -> set[str]:
    return set()
