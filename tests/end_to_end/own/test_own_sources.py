"""Each command with a main pipeline of the user's own, whatever that came as."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.foreign import graphs, libraries
from benchmark.foreign.case import Case, pictures
from bundle_client import Client
from scripts.measuring.perf_analyzer import has_libb64
from scripts.steps.vision import torchvision
from tests.end_to_end.own.test_own_main import (
    LABELS,
    OTHERS,
    ask_plainly,
    fresh,
    list_models,
    require_alone,
)
from tests.foreign.test_ir import as_ir
from tests.networks import draw_network
from tests.project import Project, picture

__all__ = ["fresh"]  # a fixture
pytestmark = pytest.mark.rare

LENIENT = {"ANYWAY": "1", "WATCH_SECONDS": "1", "MAX_P99_RATIO": "1000"}
PHOTO = picture()
ARCH = "squeezenet1_1"


def make_onnx(file: Path, seed: int) -> dict[str, str]:
    return {"FROM": str(draw_network(file.with_suffix(".onnx"), seed))}


def make_weights(file: Path, seed: int) -> dict[str, str]:
    torch.save(build(seed).state_dict(), file.with_suffix(".pth"))
    return {"ARCH": ARCH, "WEIGHTS": str(file.with_suffix(".pth"))}


def make_torchscript(file: Path, seed: int) -> dict[str, str]:
    torch.jit.trace(build(seed), torch.zeros(1, 3, 224, 224)).save(file.with_suffix(".pt"))
    return {"FROM": str(file.with_suffix(".pt")), "SIZE": "224"}


def build(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    made: torch.nn.Module = torchvision.models.get_model(ARCH, num_classes=10).eval()
    return made


Source = Callable[[Path, int], dict[str, str]]


COMMANDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("up", {}),
    ("status", {}),
    ("models", {}),
    ("classify", {"IMG": "photo.jpg"}),
    ("trace", {"IMG": "photo.jpg"}),
    ("eval", {"EVAL": "val"}),
    ("drift", {}),
    ("bench", {"QUICK": "1", "IMAGES": "photo.jpg"}),
    ("tune", {"MINUTES": "0.05", "STOP": "1", "IMAGES": "photo.jpg"}),
    ("up", {}),
    ("publish", {"WEIGHTS": "second"}),
    ("rollout", LENIENT),
    ("rollback", LENIENT),
    ("history", {}),
    ("logs", {}),
)
# The server that make torture harms for minutes.
HARMED = """
from pathlib import Path
from benchmark.torture.own_server import serve_own
with serve_own(Path("torture.log")) as (subject, _):
    print(subject.pipeline, *subject.expected_processes())
"""
NEEDS_LIBB64 = ("bench", "tune")


@pytest.mark.parametrize("make_source", [make_onnx, make_weights, make_torchscript])
def test_every_command_means_it(fresh: Project, tmp_path: Path, make_source: Source) -> None:
    words = make_source(tmp_path / "birds", 0) | {"LABELS": f"{tmp_path}/birds.txt"}
    second = make_source(tmp_path / "second", 1)
    places = {"photo.jpg": f"{tmp_path}/photo.jpg", "val": str(label_noise(tmp_path / "val"))}
    places["second"] = second.get("WEIGHTS", second.get("FROM", ""))
    said = [fresh.made("up", **words)]
    for command, given in COMMANDS:
        if has_libb64() or command not in NEEDS_LIBB64:
            given = {name: places.get(word, word) for name, word in given.items()}
            said.append(fresh.made(command, **given))
    assert f" · {words.get('ARCH', 'birds.onnx')} v1 · " in "".join(said)
    assert not [line for text in said for line in text.splitlines() if OTHERS.search(line)]
    done = fresh.run_command(f"{fresh.path}/.venv/bin/python", "-c", HARMED)
    assert done.stdout.startswith("birds "), done.stderr
    said.append(done.stdout)
    assert "birds" in (models := list_models(fresh)) and not OTHERS.search(" ".join(models))
    assert not [process for process in fresh.processes() if OTHERS.search(str(process.cmdline()))]

    saved, expected = tmp_path / "saved.tar", ask_plainly(fresh, PHOTO)
    fresh.made("backup", TO=str(saved))
    fresh.made("clean")
    fresh.made("restore", FROM=str(saved))
    fresh.made("up")
    assert ask_plainly(fresh, PHOTO)["labels"] == expected["labels"]


def label_noise(folder: Path) -> Path:
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for number in range(3):
            (folder / label / f"{number}.jpg").write_bytes(picture())
    return folder


KNOWN = {case.name: case for case in (*libraries.CASES, *graphs.CASES)}
# One of each way in which networks are kept, beside those above.
KEPT = (
    KNOWN["vit"],
    KNOWN["test_vit"],
    KNOWN["mobilenet_v3_small (torch.export)"],
    KNOWN["a folder with flavour onnx"],
    KNOWN["a folder with flavour pytorch"],
    as_ir(KNOWN["a softmax at the end"]),
)


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.origin + " " + case.name)
def test_it_is_served_alone_and_as_it_is(fresh: Project, tmp_path: Path, case: Case) -> None:
    (folder := tmp_path / "kept").mkdir()
    truth, files = case.make(folder), pictures(3)
    exactly = {"PRECISION": "fp32", "DECODE": "full"}
    fresh.made("up", NAME="birds", **exactly, **case.make_settings(folder))
    require_alone(fresh, "birds")
    assert "%" in fresh.made("classify", IMG=f"{tmp_path}/photo.jpg")
    with Client(fresh.http) as client:
        for file in files:
            expected = truth(file)
            answer = client.classify(file, top=len(expected))
            given = [
                each.probability for each in sorted(answer.labels, key=lambda each: each.index)
            ]
            assert np.abs(given - expected).max() < case.bound
    fresh.made("down")
    assert not fresh.processes()
