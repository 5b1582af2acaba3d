"""One step, as it is on a CPU: one model does what three do otherwise, by the same names and with
the same answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from benchmark.rollouts import clients
from bundle_client import Client, PictureRefused
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.scores import softmax
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from tests.pipelines import pictures_by_pytorch
from tests.project import Project, error_lines, picture

STEPS = ("preprocessing", "resnet50_onnx", "postprocessing")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Project]:
    quick = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}
    made = Project.copy(tmp_path_factory.mktemp("one"), FLAVOUR="local", STEPS="auto", **quick)
    made.take(exported)
    made.settings["CASCADE"] = made.settings["WEIGHTS"]
    made.made("up")
    yield made
    made.end()


def infer(project: Project, model: str, name: str, tensor: NDArray[Any], output: str) -> Any:
    client = tritonclient.grpc.InferenceServerClient(project.grpc)
    try:
        sent = tritonclient.grpc.InferInput(name, tensor.shape, "UINT8")
        sent.set_data_from_numpy(tensor)
        wanted = tritonclient.grpc.InferRequestedOutput(output)
        return client.infer(model, [sent], outputs=[wanted]).as_numpy(output)
    finally:
        client.close()


def row(file: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(file, np.uint8)[None]


def loaded(project: Project) -> set[str]:
    shown = project.made("models", COLUMNS="200")
    return set(re.findall(r"^ ?(\w+) +\d+ +READY", shown, re.MULTILINE))


ASKED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not ASKED.exists() or "[never]" in ASKED.read_text(), reason="this kernel has no huge pages"
)
def test_the_network_lies_in_huge_pages(one: Project) -> None:
    models = one.processes("triton_python_backend_stub", "resnet50_onnx")
    assert models
    for each in models:
        told = Path(f"/proc/{each.pid}/smaps_rollup").read_text()
        (kilobytes,) = re.findall(r"^AnonHugePages: +(\d+) kB", told, re.MULTILINE)
        assert int(kilobytes) > 4 << 10


def test_it_answers_as_pytorch_does(one: Project, assets: Path) -> None:
    photos = [assets / "images" / name for name in ("mug.jpg", "car.jpg", "vulture.jpeg")]
    expected = pictures_by_pytorch(Path(one.settings["WEIGHTS"]), photos)
    for photo, wanted in zip(photos, expected, strict=True):
        (answer,) = infer(one, PIPELINE, "INPUT", row(photo.read_bytes()), "OUTPUT")
        assert answer.argmax() == wanted.argmax()


def test_one_model_is_loaded_and_reports_three_parts(one: Project) -> None:
    assert loaded(one) == {PIPELINE, "resnet50_onnx"}
    (one.path / "noise.jpg").write_bytes(picture())
    shown = one.made("trace", IMG="noise.jpg")
    assert re.findall(r"^step +(\w+)", shown, re.MULTILINE) == list(STEPS)
    assert "ready · " in one.made("status")


@pytest.mark.rare
@pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}")
def test_bench_tells_the_parts_of_the_one_step(one: Project) -> None:
    shown = one.made("bench", "QUICK=1")
    (report,) = re.findall(r"report: (\S+)$", shown, re.MULTILINE)
    results = json.loads((one.path / report).with_name("results.json").read_text())
    ensembles = (each for each in results["measurements"] if each["target"] == "ensemble")
    for flow in (each["waterfall_ms"] for each in ensembles):
        assert [step["name"] for step in flow["steps"]] == list(STEPS)
        assert all(step["compute"] > 0 for step in flow["steps"])


def test_pixels_get_scores_as_from_the_network_alone(one: Project) -> None:
    file = picture()
    how = Transform.load(next(one.path.glob("build/live/resnet50_onnx/*/transform.json")))
    pixels = to_pixels(file, how)[None]
    scores = infer(one, "resnet50_onnx", "input", pixels, "output")
    answer = infer(one, PIPELINE, "INPUT", row(file), "OUTPUT")
    assert np.allclose(softmax(scores), answer, atol=0.02)
    with pytest.raises(InferenceServerException, match="send INPUT and ask for OUTPUT"):
        infer(one, "resnet50_onnx", "input", pixels, "OUTPUT")


def test_bad_pictures_fail_alone(one: Project) -> None:
    with Client(url=one.grpc, protocol="grpc") as client:
        results = list(client.classify_many([picture(), b"no picture"] * 20, concurrency=16))
    assert [isinstance(each.error, PictureRefused) for each in results] == [False, True] * 20
    assert all(each.labels for each in results[::2])


@pytest.mark.rare
def test_the_cascade_takes_the_network_from_it(one: Project) -> None:
    """And loads the step that it shares with the three."""
    (one.path / "noise.jpg").write_bytes(picture())
    one.made("classify", IMG="noise.jpg", MODEL="cascade")
    assert {"preprocessing", "cascade"} <= loaded(one)
    answered = infer(one, "cascade", "INPUT", row(picture()), "ANSWERED_BY")
    assert answered[0, 0] == b"resnet50_onnx"
    one.made("unload", TRITON_MODEL="cascade")
    assert loaded(one) == {PIPELINE, "resnet50_onnx"}
    one.made("load", TRITON_MODEL="preprocessing")
    one.made("unload", TRITON_MODEL="preprocessing")
    assert "is needed" in one.make("unload", TRITON_MODEL="resnet50_onnx").stderr


def test_a_version_is_rolled_out_and_back(one: Project) -> None:
    one.made("publish", DECODE="full")
    with clients(one.http, one.grpc, 2, 0.2) as load:
        assert "is live; 0 of " in one.made("rollout", CANARY="20")
        assert loaded(one) == {PIPELINE, "resnet50_onnx"}
        assert "is live; 0 of " in one.made("rollback")
    assert load.faults == [] and load.answered


@pytest.mark.rare
def test_another_number_of_steps_takes_a_restart(one: Project) -> None:
    one.made("publish", STEPS="3", MAX_MEGAPIXELS="40")
    (line,) = error_lines(one.make("rollout").stderr)
    assert "has STEPS=3" in line and "make up" in line
    one.made("up", STEPS="3")
    assert {*STEPS, PIPELINE} <= loaded(one)
    (one.path / "noise.jpg").write_bytes(picture())
    one.made("classify", IMG="noise.jpg")
    one.made("up")
    assert loaded(one) == {PIPELINE, "resnet50_onnx"}
