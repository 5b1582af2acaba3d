"""A model of a table, asked by its command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import xgboost
from numpy.typing import NDArray

from tests.project import Project

NAMES = ["petal", "sepal", "weight"]
# The models differ in their answers, and the clients here are slow.
ROLLED = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20", "ANYWAY": "1"}


def trained(path: Path, seed: int) -> xgboost.Booster:
    """Three flowers, told apart by three numbers of which some are missing."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 3, 300)
    rows = random.standard_normal((300, 3)) + kinds[:, None]
    rows[random.random(rows.shape) < 0.1] = np.nan
    data = xgboost.DMatrix(rows, kinds, feature_names=NAMES)
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 5)
    booster.save_model(path)
    return booster


def without_a_network(served: Project) -> Project:
    """The same, without the main pipeline's network in its settings."""
    kept = served.settings.keys() - {"ARCH", "WEIGHTS", "SAMPLES"}
    return replace(served, settings={name: served.settings[name] for name in kept})


def asked(own: Project, path: Path) -> NDArray[np.float64]:
    output = own.made("ask", MODEL="flowers", IN=str(path), JSON="1")
    answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for answer in answers:
        numbers = answer["probabilities"]
        assert numbers[answer["label"]] == max(numbers.values())
    return np.array([[*answer["probabilities"].values()] for answer in answers])
