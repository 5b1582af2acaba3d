"""`triton-bundle` from its wheel alone: an empty folder, and a PATH without git and make."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.base.paths import ROOT
from tests.networks import draw_network
from tests.project import free_ports, picture

ABSENT = {"git", "make"}
LABELS = [f"bird {number}" for number in range(10)]


class Program:
    def __init__(self, home: Path) -> None:
        self.home, installed, links = home / "user", home / "installed", home / "links"
        for each in (self.home, links):
            each.mkdir()
        for file in Path("/usr/bin").iterdir():
            if file.name not in ABSENT:
                (links / file.name).symlink_to(file)
        pip = (sys.executable, "-m", "pip", "--quiet")
        source = home / "source"
        files = subprocess.check_output(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True
        ).splitlines()
        for name in files:
            if (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes((ROOT / name).read_bytes())
        subprocess.run(
            [*pip, "wheel", "--no-deps", "-w", str(home / "dist"), str(source)], check=True
        )
        subprocess.run([sys.executable, "-m", "venv", str(installed)], check=True)
        (wheel,) = (home / "dist").iterdir()
        subprocess.run([installed / "bin/pip", "-q", "install", "--no-deps", wheel], check=True)
        http, grpc, metrics = map(str, free_ports(3))
        self._environment = {
            "HOME": str(home),
            "PATH": f"{installed}/bin:{links}",
            "FLAVOUR": "local",
            "HTTP_PORT": http,
            "GRPC_PORT": grpc,
            "METRICS_PORT": metrics,
        } | {
            name: os.environ[name] for name in ("CA_BUNDLE", "PIP_INDEX_URL") if name in os.environ
        }

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["triton-bundle", *words],
            cwd=self.home,
            env=self._environment,
            capture_output=True,
            text=True,
            executable=self._environment["PATH"].split(":")[0] + "/triton-bundle",
        )

    def answer(self, *words: str) -> str:
        called = self.call(*words)
        assert called.returncode == 0, called.stdout + called.stderr
        return called.stdout


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.call("down")


@pytest.mark.rare
def test_serves_from_its_wheel_alone(program: Program) -> None:
    for seed, name in enumerate(("birds.onnx", "other.onnx")):
        draw_network(program.home / name, seed)
    (program.home / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (program.home / "photo.jpg").write_bytes(picture())

    assert "birds" in program.answer("up", "FROM=birds.onnx", "LABELS=birds.txt")
    answer = json.loads(program.answer("classify", "IMG=photo.jpg", "--json"))
    assert answer["labels"][0]["label"] in LABELS
    status = [json.loads(line) for line in program.answer("status", "--json").splitlines()]
    assert any("birds" in str(each.get("model")) and each["answered"] >= 1 for each in status)
    program.answer("publish", "WEIGHTS=other.onnx")
    program.answer("rollout", "ANYWAY=1", "MAX_P99_RATIO=1000", "WATCH_SECONDS=1")
    program.answer("down")
    assert {each.name for each in program.home.iterdir()} == {
        *("bundle", "birds.onnx", "other.onnx", "birds.txt", "photo.jpg")
    }


@pytest.mark.rare
def test_measures_from_its_wheel_alone(program: Program) -> None:
    draw_network(program.home / "birds.onnx", 0)
    program.answer("up", "FROM=birds.onnx")
    assert "report: bundle/build/bench/" in program.answer("bench", "QUICK=1")
