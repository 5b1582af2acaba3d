"""The pipeline of arrays, from a checkpoint as Places365 publishes it to a served answer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from bundle_client import Client
from bundle_serving.arrays import Squares, to_square
from scripts.arrays import export, repository
from scripts.host import temporary
from scripts.mould import write
from scripts.mould.recipe import Array, load_as
from tests.project import Project, picture


def checkpoint(folder: Path) -> Path:
    """The form that Places365 publishes: trained on several GPUs, with other things beside."""
    import torch

    from scripts.pipeline.vision import torchvision

    torch.manual_seed(1)
    network = torchvision.models.resnet50(weights=None, num_classes=365)
    state = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
    path = folder / "resnet50_places365.pth.tar"
    torch.save({"epoch": 90, "arch": "resnet50", "state_dict": state, "best_prec1": 54.7}, path)
    lines = [f"/p/place_{number} {number}\n" for number in range(365)]
    (folder / export.CATEGORIES).write_text("".join(lines))
    return path


def expected(path: Path, pictures: list[np.ndarray]) -> np.ndarray:
    import torch

    from scripts.pipeline.networks import read_state
    from scripts.pipeline.vision import torchvision

    network = torchvision.models.resnet50(weights=None, num_classes=365).eval()
    network.load_state_dict(read_state(path))
    how = load_as(export.RECIPE, Array).pictures
    squares = np.stack([to_square(each, Squares(how.side, how.mean, how.std)) for each in pictures])
    with torch.inference_mode():
        return network(torch.from_numpy(squares)).softmax(1).numpy()


def test_from_a_checkpoint_to_an_answer(tmp_path: Path) -> None:
    weights, made, models = checkpoint(tmp_path), tmp_path / "made", tmp_path / "models"
    assert export.main(["--weights", str(weights), "--out", str(made)]) == 0
    recipe = load_as(export.RECIPE, Array)
    write.write(recipe, models)
    assert repository.lay_out(made, recipe, models)
    random = np.random.default_rng(0)
    sizes = [(300, 200), (64, 96), (256, 256), (40, 500)]
    pictures = [random.integers(0, 256, (*size, 3)).astype(np.float32) for size in sizes]
    ensemble = recipe.models.ensemble
    with (
        temporary.triton("the server", models, tmp_path / "log", ensemble) as (http, _),
        Client(http) as client,
    ):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(client.place, pictures * 4))
        for found, right in zip(answers, list(expected(weights, pictures)) * 4, strict=True):
            assert len(found) == 5
            assert found[0].label == f"place_{right.argmax()}"
            for label in found:
                assert label.probability == pytest.approx(right[label.index], abs=0.01)
        its_own = tritonclient.http.InferenceServerClient(http)
        try:
            refuses_what_is_no_picture(its_own, ensemble)
            two = tritonclient.http.InferInput("INPUT", [2, 32, 32, 3], "FP32")
            two.set_data_from_numpy(np.zeros((2, 32, 32, 3), np.float32))
            answer = its_own.infer(ensemble, [two]).as_numpy("postprocess_result")
            assert answer.shape == (2, 5)
        finally:
            its_own.close()


def refuses_what_is_no_picture(
    client: tritonclient.http.InferenceServerClient, ensemble: str
) -> None:
    grey = tritonclient.http.InferInput("INPUT", [1, 32, 32, 1], "FP32")
    grey.set_data_from_numpy(np.zeros((1, 32, 32, 1), np.float32))
    with pytest.raises(InferenceServerException, match="32x32x1 is no picture") as refused:
        client.infer(ensemble, [grey])
    assert refused.value.status() == "400"


def test_make_classify_with_places(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, FLAVOUR="local", WEIGHTS="random", PLACES="random")
    (tmp_path / "noise.jpg").write_bytes(picture())
    asked = {"IMG": str(tmp_path / "noise.jpg"), "MODEL": "places"}
    try:
        out = project.made("classify", **asked, JSON="1").splitlines()[-1]
        labels = json.loads(out)["labels"]
        assert len(labels) == 5 and labels[0]["label"].endswith("(untrained weights)")
        assert "torchvision/resnet50," in project.made("models")
        assert "places2.csail.mit.edu" in project.make("classify", **asked, PLACES="").stderr
        odd = project.make("classify", IMG=asked["IMG"], MODEL="smells")
        assert "MODEL=smells is not known" in odd.stderr
    finally:
        project.make("clean")
    assert not list(project.path.glob("model_repository/*/1/model.onnx"))
    assert not list(project.path.glob("model_repository/**/labels.txt"))
