"""A picture's whole way in one process: what is wrong with one request harms no other."""

import gc
import json
import shlex
import shutil
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from numpy.typing import NDArray
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bundle_serving.decoder import Decoder
from bundle_serving.one_step import COMPUTE, DECODE, READ, OneStep
from bundle_serving.pictures import PictureError, Transform, to_pixels
from bundle_serving.scores import ScoresError, softmax
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import folders, pipelines, schema
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU, GPU
from scripts.repository import custom
from scripts.repository.archive import Version
from scripts.repository.own_pipelines import write_models
from scripts.rollout.preflight import require_sound
from scripts.server import layouts
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks.memory import limit_mb
from tests.project import ROOT, picture

HOW = Transform(resize=8, crop=8)
# Of each request: a known answer will do.
MAY = [True] * 4


def sent(file: bytes) -> NDArray[np.uint8]:
    """As Triton hands it on."""
    return np.frombuffer(file, np.uint8)


GOOD, BAD = sent(picture((30, 20))), sent(b"no picture")


def by_colour(pixels: NDArray[Any], _: Sequence[bool] = ()) -> NDArray[Any]:
    """A network of three classes."""
    scores: NDArray[Any] = pixels.mean(axis=(2, 3), dtype=np.float32)
    return scores


class Told:
    def __init__(self) -> None:
        self.all: list[tuple[str, list[int], int]] = []

    def __call__(
        self, part: str, numbers: Sequence[int], began: int, failed: Collection[int]
    ) -> None:
        assert began > 0
        self.all.append((part, list(numbers), len(failed)))


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    made = Decoder(HOW, 2)
    yield made
    made.close()


@pytest.mark.parametrize("file", [b"no picture", picture((30, 20))[:300]], ids=["none", "half"])
def test_a_picture_that_is_refused_is_let_go(decoder: Decoder, file: bytes) -> None:
    step = OneStep(decoder, by_colour, softmax)

    def ask() -> weakref.ref[NDArray[np.uint8]]:
        pictures = sent(file).copy()[None]
        (refusal,) = step.of_files([pictures], MAY, Told())
        assert isinstance(refusal, PictureError)
        return weakref.ref(pictures)

    gc.collect()
    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


def test_each_request_gets_its_own_rows_in_order(decoder: Decoder) -> None:
    files, told = [sent(picture((30 + n, 20))) for n in range(4)], Told()
    found = OneStep(decoder, by_colour, softmax).of_files(
        [files[:1], files[1:3], files[3:]], MAY, told
    )
    expected = softmax(by_colour(np.stack([to_pixels(file, HOW) for file in files])))
    assert [len(each) for each in found if isinstance(each, np.ndarray)] == [1, 2, 1]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-5)  # type: ignore[arg-type]
    assert told.all == [(part, [0, 1, 2], 0) for part in (DECODE, COMPUTE, READ)]


def test_a_single_picture_wakes_no_other_thread() -> None:
    threads: list[int] = []
    decoder = Decoder(HOW, 2, lambda *_: threads.append(threading.get_ident()))
    way = OneStep(decoder, by_colour, softmax)
    way.of_files([[GOOD]], MAY, Told())
    assert threads == [threading.get_ident()]
    way.of_files([[GOOD], [GOOD]], MAY, Told())
    assert threads.count(threading.get_ident()) == 1
    way.close()


def test_a_bad_picture_fails_its_own_request(decoder: Decoder) -> None:
    told = Told()
    requests = [[BAD], [GOOD], [GOOD, BAD], [GOOD]]
    one, two, three, four = OneStep(decoder, by_colour, softmax).of_files(requests, MAY, told)
    assert isinstance(one, PictureError) and isinstance(three, PictureError)
    assert one.__traceback__ is None  # which would keep the picture
    assert np.array_equal(two, four)  # type: ignore[arg-type]
    assert told.all == [(DECODE, [0, 1, 2, 3], 2), (COMPUTE, [1, 3], 0), (READ, [1, 3], 0)]


def test_where_no_picture_is_left_the_network_is_not_asked(decoder: Decoder) -> None:
    told = Told()
    (found,) = OneStep(decoder, by_colour, softmax).of_files([[BAD]], MAY, told)
    assert isinstance(found, PictureError) and told.all == [(DECODE, [0], 1)]


def test_scores_that_are_none_are_refused(decoder: Decoder) -> None:
    """Those of one request, where its neighbour's are fine."""

    def network(pixels: NDArray[Any], _: Sequence[bool]) -> NDArray[Any]:
        scores = by_colour(pixels)
        scores[0] = np.nan
        return scores

    told = Told()
    one, two = OneStep(decoder, network, softmax).of_files([[GOOD], [GOOD]], MAY, told)
    assert isinstance(one, ScoresError) and isinstance(two, np.ndarray)
    assert told.all[-1] == (READ, [0, 1], 1)


def test_a_network_that_fails_fails_its_batch(decoder: Decoder) -> None:
    def network(pixels: NDArray[Any], _: Sequence[bool]) -> NDArray[Any]:
        raise RuntimeError("no memory")

    told = Told()
    found = OneStep(decoder, network, softmax).of_files([[GOOD], [BAD]], MAY, told)
    assert [str(each)[:9] for each in found] == ["no memory", "not a rea"]
    assert told.all == [(DECODE, [0, 1], 1), (COMPUTE, [0], 1)]


def test_pixels_get_the_networks_scores(decoder: Decoder) -> None:
    told, pixels = Told(), np.arange(2 * 3 * 8 * 8, dtype=np.uint8).reshape(2, 3, 8, 8)
    one, two = OneStep(decoder, by_colour, softmax).of_pixels([pixels[:1], pixels], MAY, told)
    assert not isinstance(one, Exception) and not isinstance(two, Exception)
    assert np.array_equal(two, by_colour(pixels)) and np.array_equal(one, by_colour(pixels[:1]))
    assert told.all == [(COMPUTE, [0, 1], 0)]


def config(path: str) -> ModelConfig:
    return text_format.Parse((ROOT / "model_repository" / path).read_text(), ModelConfig())


def test_the_one_step_is_the_ensembles() -> None:
    """The same tensors as with three."""
    ensemble = config("ensemble_python_resnet50/configs/one_step.pbtxt")
    of_three = config("ensemble_python_resnet50/config.pbtxt")
    (step,) = ensemble.ensemble_scheduling.step
    ensemble.ensemble_scheduling.CopyFrom(of_three.ensemble_scheduling)
    assert ensemble == of_three
    model = config(f"{step.model_name}/configs/one_step.pbtxt")
    assert model.name == step.model_name and model.max_batch_size >= ensemble.max_batch_size
    (taken,) = (each for each in model.input if each.name in step.input_map)
    (given,) = (each for each in model.output if each.name in step.output_map)
    assert taken.dims == ensemble.input[0].dims and given.dims == ensemble.output[0].dims
    assert all(each.optional for each in model.input)  # files or pixels
    _, warm = model.model_warmup
    picture = (
        ROOT / "model_repository" / model.name / "warmup" / warm.inputs["INPUT"].input_data_file
    )
    assert list(warm.inputs["INPUT"].dims) == [picture.stat().st_size]


def test_a_gpu_keeps_its_three_steps() -> None:
    settings = Settings(DEFAULTS | {"STEPS": "1"})
    assert (
        layouts.layout(settings, CPU).one_step and layouts.layout(Settings(DEFAULTS), CPU).one_step
    )
    assert not layouts.layout(Settings(DEFAULTS), GPU).one_step
    with pytest.raises(UserError, match="STEPS=1 is for a CPU"):
        layouts.layout(settings, GPU)


def test_another_number_of_steps_needs_a_restart() -> None:
    old = Version(pipelines.main(), 1, "now", {}, {"resnet50_onnx": 1}, {})  # before there were any
    new = replace(old, number=2, settings={"STEPS": "1"})
    with pytest.raises(UserError, match="STEPS=1") as refused:
        require_sound(old, new, CPU)
    assert "make up STEPS=1" in refused.value.remedy
    with pytest.raises(UserError, match="STEPS=3") as refused:
        require_sound(new, old, CPU)
    assert "make up STEPS=3" in refused.value.remedy


def test_folders_of_an_earlier_release_are_to_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path))
    made = custom.recipe("birds", {"ARCH": "resnet18", "WEIGHTS": "random"})
    write_models(made, tmp_path / "model_repository")
    # Its file may have another name than its ensemble.
    file = tmp_path / "recipes" / "many birds.yaml"
    files.write(file, json.dumps(made.model_dump(mode="json", exclude_none=True)))
    recipe = schema.load(file)
    assert isinstance(recipe, Image)
    one, three = (
        layouts.layout(Settings(DEFAULTS | {"STEPS": steps}), CPU) for steps in ("auto", "3")
    )
    assert recipe.variant("birds_onnx", one) == "one_step"
    (tmp_path / "model_repository" / "birds_onnx" / "configs" / "one_step.pbtxt").unlink()
    assert recipe.variant("birds_onnx", three) != "one_step"
    with pytest.raises(UserError, match="birds_onnx was written by an earlier release") as refused:
        recipe.variant("birds_onnx", one)
    command = shlex.split(refused.value.remedy.partition("again: ")[2].partition(",")[0])
    assert command == ["rm", "-r", str(tmp_path / "model_repository" / "birds")]
    assert "birds" in folders.model_folders()
    shutil.rmtree(command[-1])
    assert "birds" not in folders.model_folders()  # and so make up writes them
    write_models(recipe, folders.own().models)
    assert recipe.variant("birds_onnx", one) == "one_step"


def test_memory_is_for_as_many_as_decode() -> None:
    few = {"CORES": "4", "PREPROCESS_INSTANCES": "1", "NETWORK_INSTANCES": "4"}
    three, one = (limit_mb(Settings(DEFAULTS | few | {"STEPS": steps})) for steps in "31")
    assert one > three
