"""Somebody's own network as the main pipeline: named once, and ImageNet's is nowhere."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from tests.project import Project, error_lines, picture

LABELS = [f"bird {number}" for number in range(10)]
OTHERS = re.compile("resnet|imagenet", re.IGNORECASE)


def draw_network(path: Path, seed: int = 0) -> Path:
    """Of ten birds, without PyTorch."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(48, 10)).astype(np.float32)
    pixels, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("pixels", ("n", 3, 64, 64)), ("scores", ("n", 10)))
    )
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["a"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "weights"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "birds", [pixels], [scores], [numpy_helper.from_array(weights, "weights")]
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def ask_plainly(project: Project, file: bytes) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{project.http}/classify", file, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Project]:
    """A fresh clone, and a network beside it."""
    project = Project.copy(tmp_path / "clone", FLAVOUR="local", ARCH="", WEIGHTS="", STEPS="")
    draw_network(tmp_path / "birds.onnx")
    (tmp_path / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (tmp_path / "photo.jpg").write_bytes(picture())
    yield project
    project.end()


def test_a_network_of_ones_own_is_the_main_one(fresh: Project, tmp_path: Path) -> None:
    words = {"FROM": f"{tmp_path}/birds.onnx", "LABELS": f"{tmp_path}/birds.txt"}
    said = fresh.made("up", **words)
    assert not OTHERS.search(said), said
    assert "birds" in said

    status = fresh.made("status")
    assert "birds" in status and not OTHERS.search(status)
    models = fresh.made("models")
    assert "birds" in models and not OTHERS.search(models)
    answer = json.loads(fresh.made("classify", IMG=f"{tmp_path}/photo.jpg", JSON="1"))
    assert answer["labels"][0]["label"] in LABELS
    plain = ask_plainly(fresh, picture())
    assert plain["model"] == "birds" and plain["labels"][0]["label"] in LABELS

    assert "up already" in fresh.made("up"), "it was named once"
    assert "up already" in fresh.made("up", **words), "the same again"
    other = draw_network(tmp_path / "other.onnx", seed=1)
    assert "published" in fresh.made("publish", WEIGHTS=str(other))
    assert "version 2 is live" in fresh.made("rollout", ANYWAY="1", MAX_P99_RATIO="1000")
    assert "version 1 is live" in fresh.made("rollback", MAX_P99_RATIO="1000")
    assert "version 1 is live" in fresh.made("history")

    saved = tmp_path / "saved.tar"
    fresh.made("backup", TO=str(saved))
    fresh.made("down")
    restored = Project.copy(tmp_path / "restored", FLAVOUR="local", ARCH="", WEIGHTS="", STEPS="")
    try:
        restored.made("restore", FROM=str(saved))
        assert "birds" in restored.made("up")
        assert not OTHERS.search(restored.made("status"))
    finally:
        restored.end()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ({"FROM": "{}/birds.onnx", "LABELS": "{}/three.txt"}, "3 labels"),
        ({"FROM": "{}/birds.onnx", "ARCH": "resnet18"}, "FROM= already names a network"),
        ({"FROM": "{}/birds.onnx", "NAME": "preprocessing"}, "preprocessing already exists"),
        ({"FROM": "{}/birds.onnx", "NAME": "video"}, "video already exists"),
        ({"FROM": "{}/birds.onnx", "MAIN": "resnet50"}, "MAIN=resnet50 names one main pipeline"),
        ({"FROM": "{}/none.onnx"}, "does not exist"),
        ({"MAIN": "owls"}, "owls, which does not exist"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    fresh: Project, tmp_path: Path, words: dict[str, str], cause: str
) -> None:
    (tmp_path / "three.txt").write_text("one\ntwo\nthree\n")
    done = fresh.make("up", **{name: text.format(tmp_path) for name, text in words.items()})
    assert done.returncode
    (line,) = error_lines(done.stderr)
    assert cause in line
    assert not (fresh.path / "own").exists() or not list((fresh.path / "own").rglob("*.yaml"))
    assert not (fresh.path / "build" / "versions" / "main.txt").exists()
