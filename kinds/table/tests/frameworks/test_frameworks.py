"""Models as the frameworks save them: each is served as it answers there, or refused with the
reason."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray
from sklearn import ensemble, impute, linear_model, neural_network, pipeline, preprocessing, svm

from bundle_serving import onnxruntime_engine
from bundle_serving.protocol import golden
from kinds.table.export import GOLDEN, Table, export
from kinds.table.rows import INPUT
from scripts.artefacts.manifest import why_export
from scripts.base.errors import UserError

random = np.random.default_rng(0)
KINDS = random.integers(0, 3, 200)
ROWS = (random.standard_normal((200, 4)) + KINDS[:, None]).astype(np.float32)
VALUES = 1000 * ROWS[:, 0] + 50 * ROWS[:, 1]
SOME_MISSING = np.where(random.random(ROWS.shape) < 0.1, np.nan, ROWS)
NAMES = np.array(["rose", "tulip", "lily"])[KINDS]

Saved = Callable[[Path], Path]


def of_xgboost(
    rows: NDArray[Any], wanted: NDArray[Any], name: str = "m.json", **more: Any
) -> Saved:
    def save(folder: Path) -> Path:
        booster = xgboost.train(more, xgboost.DMatrix(rows, wanted), 5)
        booster.save_model(folder / name)
        return folder / name

    return save


def of_lightgbm(rows: NDArray[Any], wanted: NDArray[Any], **more: Any) -> Saved:
    def save(folder: Path) -> Path:
        options = {"verbose": -1, "num_leaves": 7, **more}
        lightgbm.train(options, lightgbm.Dataset(rows, wanted), 5).save_model(folder / "m.txt")
        return folder / "m.txt"

    return save


def of_scikit_learn(model: Any, wanted: NDArray[Any], rows: NDArray[Any] = ROWS) -> Saved:
    def save(folder: Path) -> Path:
        import skops.io  # takes seconds, in each worker

        skops.io.dump(model.fit(rows, wanted), folder / "m.skops")
        return folder / "m.skops"

    return save


def twice(rows: NDArray[Any]) -> NDArray[Any]:
    doubled: NDArray[Any] = 2 * rows
    return doubled


SCALED = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
THREE: dict[str, Any] = {"objective": "multi:softprob", "num_class": 3}
SERVED = {
    "XGBoost, three classes, some missing": (of_xgboost(SOME_MISSING, KINDS, **THREE), 3),
    "XGBoost, two classes, UBJSON": (
        of_xgboost(ROWS, KINDS == 1, "m.ubj", objective="binary:logistic"),
        2,
    ),
    "XGBoost, values": (of_xgboost(ROWS, VALUES, objective="reg:squarederror"), 1),
    "LightGBM, three classes, some missing": (
        of_lightgbm(SOME_MISSING, KINDS, objective="multiclass", num_class=3),
        3,
    ),
    "LightGBM, two classes": (of_lightgbm(ROWS, KINDS == 1, objective="binary"), 2),
    "LightGBM, values": (of_lightgbm(ROWS, VALUES, objective="regression"), 1),
    "scikit-learn, scaled": (of_scikit_learn(SCALED, NAMES), 3),
    "scikit-learn, a forest": (of_scikit_learn(ensemble.RandomForestClassifier(5), NAMES), 3),
    "scikit-learn, boosted": (
        of_scikit_learn(ensemble.GradientBoostingRegressor(n_estimators=5), VALUES),
        1,
    ),
    "scikit-learn, a perceptron": (
        of_scikit_learn(neural_network.MLPClassifier(max_iter=300), KINDS),
        3,
    ),
    "scikit-learn, values": (of_scikit_learn(linear_model.LinearRegression(), VALUES), 1),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("save", "values"), SERVED.values(), ids=SERVED)
def test_it_answers_as_in_its_framework(save: Saved, values: int, tmp_path: Path) -> None:
    spec, out = Table(save(tmp_path)), tmp_path / "out"
    export(spec, out)
    found = json.loads((out / "manifest.json").read_text())["onnx"]
    assert found["input"] == ["float32", 4] and found["values"] == values
    labels = (out / "labels.txt").read_text().split()
    assert labels == found["classes"] and len(labels) == (values if values > 1 else 0)
    kept = np.load(out / "reference.npz")
    given = onnxruntime_engine.Engine(out / "model.onnx", 1).only_output({INPUT: kept[INPUT]})
    np.testing.assert_allclose(np.asarray(given, np.float32), kept["scores"], rtol=1e-3, atol=1e-3)
    assert why_export(out, spec) is None


MISSING = {
    "XGBoost": (of_xgboost(ROWS, KINDS, **THREE), True),
    "LightGBM that knows some": (
        of_lightgbm(SOME_MISSING, KINDS, objective="multiclass", num_class=3),
        True,
    ),
    "LightGBM, which takes zeros for them": (
        of_lightgbm(ROWS, VALUES, objective="regression"),
        True,
    ),
    "histograms": (
        of_scikit_learn(ensemble.HistGradientBoostingClassifier(max_iter=5), NAMES),
        True,
    ),
    "an imputer": (
        of_scikit_learn(
            pipeline.make_pipeline(impute.SimpleImputer(), linear_model.LogisticRegression()),
            NAMES,
            SOME_MISSING,
        ),
        True,
    ),
    "a forest, which loses them as ONNX": (
        of_scikit_learn(ensemble.RandomForestClassifier(5), NAMES, SOME_MISSING),
        False,
    ),
    "boosted, which takes none": (
        of_scikit_learn(ensemble.GradientBoostingRegressor(n_estimators=5), VALUES),
        False,
    ),
}


@pytest.mark.parametrize(("save", "takes"), MISSING.values(), ids=MISSING)
def test_whether_it_takes_empty_cells(save: Saved, takes: bool, tmp_path: Path) -> None:
    export(Table(save(tmp_path)), tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    asked = np.load(tmp_path / "out" / "reference.npz")[INPUT]
    assert manifest["onnx"]["missing"] == np.isnan(asked).any() == takes
    # What a rollout asks of another version, too, which may take none.
    questions = golden.load(tmp_path / "out" / "golden.npz")
    assert len(questions) == GOLDEN and not any(np.isnan(each["INPUT"]).any() for each in questions)


REFUSED = {
    "a ranking": (
        of_xgboost(ROWS, KINDS == 1, objective="rank:pairwise"),
        "has the objective rank:pairwise",
    ),
    "trees that are dropped": (
        of_xgboost(ROWS, VALUES, booster="dart"),
        "cannot be converted to ONNX",
    ),
    "averaged trees": (
        of_lightgbm(ROWS, VALUES, boosting="rf", bagging_freq=1, bagging_fraction=0.7),
        "answers otherwise as ONNX",
    ),
    "no probabilities": (of_scikit_learn(svm.LinearSVC(), KINDS), "gives no probabilities"),
    "no predictor": (
        of_scikit_learn(preprocessing.StandardScaler(), KINDS),
        "neither a classifier nor a regressor",
    ),
    "labels that do not exclude each other": (
        of_scikit_learn(
            ensemble.RandomForestClassifier(2), np.stack([KINDS == 1, KINDS == 2], axis=1)
        ),
        "gives 4 numbers for 2 classes",
    ),
    "what runs where it is read": (
        of_scikit_learn(preprocessing.FunctionTransformer(os.system), VALUES),
        "contains what is not scikit-learn's: posix.system",
    ),
    "code of the user's own": (
        of_scikit_learn(
            pipeline.make_pipeline(
                preprocessing.FunctionTransformer(twice), linear_model.LinearRegression()
            ),
            VALUES,
        ),
        "contains what is not scikit-learn's",
    ),
}


@pytest.mark.parametrize(("save", "cause"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_served_says_why(save: Saved, cause: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(cause)) as refusal:
        export(Table(save(tmp_path)), tmp_path / "out")
    assert "\n" not in f"{refusal.value.cause}{refusal.value.remedy}"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["m.json", "m.ubj", "m.txt", "m.skops"])
def test_a_file_that_is_none(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("tree\n{}")
    with pytest.raises(UserError, match="cannot be read as a model of") as refusal:
        export(Table(tmp_path / name), tmp_path / "out")
    assert "\n" not in f"{refusal.value.cause}{refusal.value.remedy}"
