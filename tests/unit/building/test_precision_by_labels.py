"""Fewer bits are judged by labelled pictures, where there are some."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bundle_serving.agreement import Bound
from scripts.base.errors import UserError
from scripts.repository import evaluations
from scripts.steps import engine
from scripts.steps.engine import Check, Labels

COUNT = 60


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    items = []
    for number in range(COUNT):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
        items.append((f"{number}.png", number % 2, 1))
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "items.json").write_text(json.dumps([*items, ("broken.png", 1, 10)]))
    return Labels(tmp_path, tmp_path / "items.json", tmp_path / "float32", 1)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many of the pictures each precision has wrong; float32 none."""
    found: dict[str, int] = {}

    def answer(network: Path, pixels: NDArray[Any], precision: str) -> NDArray[Any]:
        numbers = pixels[:, 0, 0, 0]
        right = numbers >= found.get(precision, 0)
        scores: NDArray[Any] = np.eye(2)[np.where(right, numbers % 2, 1 - numbers % 2)]
        return scores

    def read_manifest(_: Path) -> Any:
        how = {"resize": 8, "crop": 8}
        return SimpleNamespace(transform=how, eight_bits=False, check={})

    def prove(check: Check, precision: str, why: str, *_: Any, **__: Any) -> dict[str, Any]:
        return {"precision": precision, "why": why}

    monkeypatch.setattr(engine, "scores", answer)
    monkeypatch.setattr("scripts.artefacts.manifest.Manifest.of_export", read_manifest)
    monkeypatch.setattr(engine, "network_in", lambda folder: folder)
    monkeypatch.setattr(engine, "_proof", prove)
    monkeypatch.setattr("bundle_serving.openvino_engine.has_bf16", lambda: True)
    return found


def test_what_costs_labels_is_not_taken(labels: Labels, wrong: dict[str, int]) -> None:
    wrong |= {"bf16": 12, "int8": 12}
    decision = engine.decide(Check(labels.float32, "auto", labels=labels))
    assert decision["precision"] == "fp32"
    assert "bf16 is right more seldom (on 60 labelled pictures, against" in decision["why"]
    assert engine.decide(Check(labels.float32, "auto"))["precision"] == "bf16"
    with pytest.raises(UserError, match=r"int8 is right more seldom .*MAX_DROP=1 is the most"):
        engine.decide(Check(labels.float32, "int8", labels=labels))


def test_classes_in_another_order_are_refused_with_the_right_one(
    labels: Labels, wrong: dict[str, int]
) -> None:
    wrong |= {"fp32": 57}  # of 60: what it takes for the one is the other
    labels.float32.mkdir()
    (labels.float32 / "labels.txt").write_text("wren\nrobin\n")
    ordered = evaluations.ORDERED / "test_wrens.txt"
    try:
        with pytest.raises(UserError, match="5% are right, and 95% in that order") as refused:
            engine.decide(Check(labels.float32, "fp32", labels=replace(labels, ordered=ordered)))
        assert "LABELS=build/eval/test_wrens.txt; for make publish" in refused.value.remedy
        assert ordered.read_text().splitlines() == ["robin", "wren"]
        wrong["fp32"] = 3
        assert engine.decide(Check(labels.float32, "fp32", labels=replace(labels, ordered=ordered)))
    finally:
        ordered.unlink()


def test_what_costs_none_is(labels: Labels, wrong: dict[str, int]) -> None:
    wrong |= {"bf16": 1}
    decision = engine.decide(Check(labels.float32, "auto", labels=labels))
    assert decision["precision"] == "bf16" and "against float32: -1.7 points" in decision["why"]


def test_what_is_given_again_is_asked_again(labels: Labels, tmp_path: Path) -> None:
    before = labels.digest
    labels.items.write_text("[]")
    assert labels.digest != before


def test_what_fails_in_float32_is_not_sent_there(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.array([[4.0, 0.0]], np.float32)
    monkeypatch.setattr(engine, "references", lambda _: [({"input": scores}, scores)])
    monkeypatch.setattr(engine, "network_in", Path)
    monkeypatch.setattr(engine, "_ask_network", lambda *_: [scores[:, ::-1]])
    monkeypatch.setattr(engine, "answers", lambda _: "single-label")
    for precision, is_sent in (("fp32", False), ("bf16", True)):
        monkeypatch.setattr(engine, "by_float32", lambda *_: [])
        monkeypatch.setattr(engine, "read_bound", lambda *_: Bound(0.1, 1))
        with pytest.raises(UserError, match=f"{precision} fails the accuracy check") as refused:
            engine._proof(Check(Path()), precision, "as asked")
        assert ("PRECISION=fp32" in refused.value.remedy) == is_sent
