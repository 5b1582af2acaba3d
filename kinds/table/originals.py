"""Models of tables as their own frameworks run them, and as ONNX."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinds.table.rows import INPUT, MAKERS
from scripts.base.errors import UserError, reword_faults

# The newest that onnxmltools writes.
OPSET = 15
# Data alone, which skops nevertheless takes only if it is told to: a forged tree can crash its
# reader, and do no more.
OF_DATA = (
    "numpy.dtype",  # of an imputer
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
)


class Original:
    """As its framework runs it."""

    width: int  # how many numbers it takes
    columns: Sequence[str]  # their names; none if it has none
    classes: Sequence[str]  # none if it gives a value
    _model: Any

    def predict(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """[rows, classes], or values."""
        given = self._model.predict_proba(rows) if self.classes else self._model.predict(rows)
        return np.asarray(given)

    def as_onnx(self) -> Any:
        raise NotImplementedError

    def _convert(self, by: Callable[..., Any], tensor: Callable[..., Any], **options: Any) -> Any:
        types = [(INPUT, tensor([None, self.width]))]
        return by(self._model, initial_types=types, target_opset=OPSET, **options)

    def as_forest(self) -> Any:
        """Treelite's, if it is one of trees alone."""
        raise NotImplementedError


def load(path: Path) -> Original:
    if path.suffix not in KINDS:
        raise UserError(
            f"{path.name} is no model of a table",
            f"give one ({', '.join(KINDS)}), or serve it beside this one: "
            "make add-model NAME=… FROM=…",
        )
    what = MAKERS[path.suffix]
    cause, remedy = f"{path.name} cannot be read as a model of {what}", f"save it again with {what}"
    with reword_faults(cause, remedy):
        return KINDS[path.suffix](path)


class OfXgboost(Original):
    def __init__(self, path: Path) -> None:
        import xgboost

        booster = xgboost.Booster()
        booster.load_model(path)
        learner = json.loads(booster.save_config())["learner"]
        objective = learner["objective"]["name"]
        kind, _, _ = objective.partition(":")
        if kind not in ("binary", "multi", "reg", "count"):
            raise UserError(
                f"{path.name} has the objective {objective}", "serve a classifier or a regressor"
            )
        is_classifier = kind in ("binary", "multi")
        self._model = (xgboost.XGBClassifier if is_classifier else xgboost.XGBRegressor)()
        self._model.load_model(path)
        self.width = booster.num_features()
        self.columns = booster.feature_names or ()
        count = max(2, int(learner["learner_model_param"]["num_class"]))
        self.classes = [*map(str, range(count))] if is_classifier else ()

    def as_onnx(self) -> Any:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        self._model.get_booster().feature_names = None  # the converter knows its own names alone
        return self._convert(onnxmltools.convert_xgboost, FloatTensorType)

    def as_forest(self) -> Any:
        import treelite

        return treelite.frontend.from_xgboost(self._model.get_booster())


class OfLightgbm(Original):
    def __init__(self, path: Path) -> None:
        import lightgbm

        lightgbm.register_logger(logging.Logger("silent", logging.CRITICAL))
        self._model = lightgbm.Booster(model_file=path)
        self.width = self._model.num_feature()
        names = self._model.feature_name()
        self.columns = () if names == [f"Column_{n}" for n in range(self.width)] else names
        described = self._model.dump_model()
        objective = described.get("objective", "").partition(" ")[0]
        count = described["num_class"]
        is_classifier = objective in ("binary", "multiclass", "multiclassova")
        self.classes = [*map(str, range(max(2, count)))] if is_classifier else ()

    def predict(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        found = np.asarray(self._model.predict(rows))
        return np.stack([1 - found, found], 1) if self.classes and found.ndim == 1 else found

    def as_onnx(self) -> Any:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        return self._convert(onnxmltools.convert_lightgbm, FloatTensorType, zipmap=False)

    def as_forest(self) -> Any:
        import treelite

        return treelite.frontend.from_lightgbm(self._model)


class OfScikitLearn(Original):
    def __init__(self, path: Path) -> None:
        import skops.io
        from sklearn.base import is_classifier, is_regressor

        if odd := [each for each in skops.io.get_untrusted_types(file=path) if each not in OF_DATA]:
            raise UserError(
                f"{path.name} contains what is not scikit-learn's: {', '.join(odd)[:200]}",
                "save a model, or pipeline, of scikit-learn's own parts",
            )
        self._model = model = skops.io.load(path, trusted=OF_DATA)
        if not (is_classifier(model) or is_regressor(model)):
            raise UserError(
                f"{path.name} has a {type(model).__name__}, neither a classifier nor a regressor",
                "save one that has been fitted",
            )
        if is_classifier(model) and not hasattr(model, "predict_proba"):
            raise UserError(
                f"{type(model).__name__} in {path.name} gives no probabilities",
                "wrap it before it is fitted: sklearn.calibration.CalibratedClassifierCV",
            )
        self.width = int(model.n_features_in_)
        self.columns = [*map(str, getattr(model, "feature_names_in_", ()))]
        self.classes = [*map(str, model.classes_)] if is_classifier(model) else ()

    def as_onnx(self) -> Any:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType

        options = {id(self._model): {"zipmap": False}} if self.classes else None
        return self._convert(convert_sklearn, FloatTensorType, options=options)

    def as_forest(self) -> Any:
        import treelite

        return treelite.sklearn.import_model(self._model)


KINDS: dict[str, Callable[[Path], Original]] = {
    ".json": OfXgboost,
    ".ubj": OfXgboost,
    ".txt": OfLightgbm,
    ".skops": OfScikitLearn,
}


def answers(original: Original, rows: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """One row of numbers for each."""
    with reword_faults(f"{name} cannot be asked", "check it by itself"):
        found = original.predict(rows)
    found = np.asarray(found, np.float32).reshape(len(rows), -1)
    if original.classes and found.shape[1] != len(original.classes):
        raise UserError(
            f"{name} gives {found.shape[1]} numbers for {len(original.classes)} classes",
            "serve a classifier whose classes exclude each other",
        )
    return found


def answers_of_forest(forest: Any, rows: NDArray[np.float32], values: int) -> NDArray[np.float32]:
    """By treelite's own arithmetic, which is the backend's on a CPU."""
    import treelite

    found = treelite.gtil.predict(forest, rows).reshape(len(rows), -1).astype(np.float32)
    of_two = values == 2 and found.shape[1] == 1
    return np.concatenate([1 - found, found], axis=1) if of_two else found
