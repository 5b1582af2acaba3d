"""Models of trees for a GPU: by the rehearsal's backend, which is as strict as Triton's FIL, they
answer as in their framework."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from numpy.typing import NDArray
from sklearn import ensemble, linear_model

from kinds.table import adoption
from kinds.table.export import Table, export
from kinds.table.tests.frameworks.test_frameworks import (
    KINDS,
    NAMES,
    ROWS,
    SERVED,
    VALUES,
    Saved,
    of_lightgbm,
    of_scikit_learn,
    of_xgboost,
)
from scripts.artefacts.manifest import why_export
from scripts.artefacts.workspace import FOREST, Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.layout import GPU, precision_of
from scripts.repository.own_pipelines import write_models
from tests.project import ROOT
from tests.python_backend import Tensor, program

FIL = ROOT / "tests" / "rehearsal" / "fil_backend"

NO_TREES = ("scikit-learn, scaled", "scikit-learn, a perceptron", "scikit-learn, values")
TREES = {name: each for name, each in SERVED.items() if name not in NO_TREES} | {
    "XGBoost, counts": (of_xgboost(ROWS, KINDS, objective="count:poisson"), 1),
    "scikit-learn, a forest of two classes": (
        of_scikit_learn(ensemble.ExtraTreesClassifier(5), NAMES == "rose"),
        2,
    ),
    "scikit-learn, boosted, three classes": (
        of_scikit_learn(ensemble.GradientBoostingClassifier(n_estimators=5), NAMES),
        3,
    ),
    "scikit-learn, histograms": (
        of_scikit_learn(ensemble.HistGradientBoostingClassifier(max_iter=5), NAMES == "lily"),
        2,
    ),
}


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    with program(FIL, []) as module:
        yield module


def exported(save: Saved, folder: Path) -> Path:
    spec, out = Table(save(folder), forest=True), folder / "out" / "onnx"
    export(spec, out)
    assert why_export(out, spec) is None
    return out


def config_for(made: Path) -> dict[str, Any]:
    """Of the model that a GPU runs, as Triton gives it to a backend."""
    recipe = adoption.make_recipe("flowers", Path("flowers.json"), {})
    write_models(recipe.as_found(Workspace(made.parent)), made.parent / "models")
    config = configs.read(made.parent / "models" / "flowers_fil" / "config.pbtxt")
    parsed: dict[str, Any] = json_format.MessageToDict(config, preserving_proto_field_name=True)
    return parsed


def loaded(backend: Any, made: Path, config: dict[str, Any]) -> Any:
    (made / "1").mkdir(exist_ok=True)
    shutil.copy(made / FOREST, made / "1")
    model = backend.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps(config),
            "model_repository": str(made),
            "model_version": "1",
        }
    )
    return model


def asked(model: Any, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """In two requests, of which one batch is made."""
    requests = [{"input__0": Tensor("input__0", part)} for part in (rows[:3], rows[3:])]
    answers = [response.tensors[0].value for response in model.execute(requests)]
    return np.concatenate(answers)


@pytest.mark.parametrize(("save", "values"), TREES.values(), ids=TREES)
def test_it_answers_as_in_its_framework(
    backend: Any, save: Saved, values: int, tmp_path: Path
) -> None:
    made = exported(save, tmp_path)
    kept = np.load(made / "reference.npz")
    given = asked(loaded(backend, made, config_for(made)), kept["input__0"])
    # The backend leaves out a dimension of one.
    assert given.shape == ((256, values) if values > 1 else (256,)) and given.dtype == np.float32
    expected = kept["scores"].reshape(given.shape)
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-3)
    assert precision_of(Workspace(made.parent), GPU) == "fp32"


REFUSED = {
    "no trees": (of_scikit_learn(linear_model.LinearRegression(), VALUES), "trees alone"),
    "several values": (
        of_scikit_learn(ensemble.RandomForestRegressor(2), np.stack([VALUES, VALUES], axis=1)),
        "gives several values",
    ),
}


@pytest.mark.parametrize(("save", "cause"), REFUSED.values(), ids=REFUSED)
def test_what_a_gpu_does_not_run_says_so(save: Saved, cause: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(cause)) as refusal:
        exported(save, tmp_path)
    assert "FLAVOUR=cpu" in refusal.value.remedy
    assert not (tmp_path / "out" / "onnx").exists()


def test_the_rehearsal_reads_the_backends_own_source(backend: Any) -> None:
    assert backend.FORMATS.keys() == {
        *("xgboost", "xgboost_json", "xgboost_ubj", "lightgbm", "treelite_checkpoint")
    }
    assert backend.FILES["treelite"] == FOREST
    assert (backend.INPUT, backend.OUTPUT) == ("input__0", "output__0")
    assert {"is_classifier", "threshold"} == {
        name for name, (_, required) in backend.PARAMETERS.items() if required
    }
    assert {"output_class", "storage_type", "algo"} <= backend.GONE
    assert "softmax" in backend.POSTPROCESSORS


Change = Callable[[dict[str, Any]], object]


def parameter(key: str, value: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["parameters"][key] = {"string_value": value}

    return change


def without(key: str) -> Change:
    return lambda config: config["parameters"].pop(key)


def tensor(side: str, **more: Any) -> Change:
    return lambda config: config[side][0].update(more)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (parameter("output_class", "true"), "output_class was removed in 25.09"),
        (parameter("storage_type", "AUTO"), "storage_type was removed in 25.09"),
        (parameter("threads", "2"), "threads is none of the backend's"),
        (parameter("is_classifier", "1"), "Expected 'true' or 'false' for parameter"),
        (parameter("threshold", "half"), "Bad input for parameter threshold"),
        (parameter("model_type", "onnx"), "not recognized as a valid serialization format"),
        (parameter("layout", "sparse"), "Unknown nvForest layout name: sparse"),
        (without("is_classifier"), "Required parameter is_classifier not found in config"),
        (without("threshold"), "Required parameter threshold not found in config"),
        (parameter("model_type", "xgboost_json"), "Could not open model file"),
        (tensor("input", name="input"), "is not input__0 in TYPE_FP32"),
        (tensor("output", data_type="TYPE_FP64"), "is not output__0 in TYPE_FP32"),
    ],
)
def test_the_rehearsal_refuses_what_the_backend_does(
    backend: Any, forest: Path, change: Change, cause: str
) -> None:
    config = config_for(forest)
    change(config)
    with pytest.raises(Exception, match=re.escape(cause)):
        loaded(backend, forest, config)


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forest")
    return exported(of_lightgbm(ROWS, KINDS == 1, objective="binary"), folder)


def test_the_rehearsal_counts_the_numbers_of_an_answer(backend: Any, forest: Path) -> None:
    rows = np.load(forest / "reference.npz")["input__0"]
    config = config_for(forest)
    model = loaded(backend, forest, config)
    likelier = asked(model, rows).argmax(axis=1)
    tensor("output", dims=["3"])(config)
    responses = loaded(backend, forest, config).execute([{"input__0": Tensor("input__0", rows)}])
    assert "1 numbers for dims [ 3 ]" in str(responses[0].error)
    tensor("output", dims=["1"])(config)
    without("predict_proba")(config)
    assert np.array_equal(asked(loaded(backend, forest, config), rows), likelier)


def test_a_damaged_checkpoint_is_refused(backend: Any, forest: Path, tmp_path: Path) -> None:
    shutil.copytree(forest, made := tmp_path / "onnx")
    (made / FOREST).write_bytes((forest / FOREST).read_bytes()[:100])
    with pytest.raises(Exception, match="treelite"):
        loaded(backend, made, config_for(forest))
