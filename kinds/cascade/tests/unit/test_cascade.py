"""Which pictures go on to the second network, and whose answer is whose."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from kinds.cascade.serving.cascade import Cascade
from tests.project import ROOT
from tests.python_backend import Tensor, program


def sure(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """As sure of class 0 as the picture's first pixel says, in per cent."""
    probability = pixels[:, 0, 0, 0] / np.float32(100)
    scores: NDArray[np.float32] = np.log(np.stack([probability, 1 - probability], axis=1))
    return scores


def run(levels: list[int], threshold: float) -> tuple[dict[str, NDArray[Any]], list[int]]:
    asked: list[int] = []

    def then(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        asked.extend(pixels[:, 0, 0, 0].tolist())
        return np.log(np.tile(np.array([0.01, 0.99], np.float32), (len(pixels), 1)))

    pixels = np.zeros((len(levels), 3, 4, 4), np.uint8)
    pixels[:, 0, 0, 0] = levels
    return Cascade("small", "large", threshold).answer(sure(pixels), pixels, then), asked


def test_only_what_the_first_is_unsure_of_goes_on() -> None:
    answers, asked = run([95, 60, 70, 51], threshold=0.75)
    assert asked == [60, 70, 51]
    assert answers["ANSWERED_BY"].tolist() == [[b"small"], [b"large"], [b"large"], [b"large"]]
    assert np.allclose(answers["OUTPUT"][:, 0], [0.95, 0.01, 0.01, 0.01], atol=1e-5)


@pytest.mark.parametrize(("threshold", "goes_on"), [(0.0, []), (0.9, [60]), (1.0, [60, 95])])
def test_the_threshold(threshold: float, goes_on: list[int]) -> None:
    answers, asked = run([60, 95], threshold)
    assert asked == goes_on
    assert answers["OUTPUT"].dtype == np.float32 and answers["ANSWERED_BY"].shape == (2, 1)


class Asked(dict[str, Tensor]):
    """A request to the model itself."""

    def request_id(self) -> str:
        return ""


def ask(level: int, factor: float = 1) -> Asked:
    scores = Tensor("SCORES", sure(np.full((1, 3, 4, 4), level, np.uint8)) * factor)
    return Asked(SCORES=scores, PIXELS=Tensor("PIXELS", np.zeros((1, 3, 4, 4), np.uint8)))


@pytest.fixture
def module() -> Iterator[Any]:
    with program(ROOT / "model_repository" / "cascade_choice" / "1", []) as found:
        yield found


def answer(module: Any, *requests: Asked) -> list[Any]:
    model = module.TritonPythonModel()
    model.cascade = Cascade("small", "large", 0.75)
    answers: list[Any] = model.execute([*requests])
    return answers


def test_what_is_no_score_fails_no_other_request_of_its_execution(module: Any) -> None:
    answers = answer(module, ask(95), ask(95, np.nan), ask(95))
    assert [bool(each.error) for each in answers] == [False, True, False]
    assert "NaN" in str(answers[1].error)
    assert answers[2].tensors[1].as_numpy().tolist() == [[b"small"]]


@pytest.mark.parametrize(
    ("why", "code"),
    [("Exceeds maximum queue size", "UNAVAILABLE"), ("no such model", "INTERNAL")],
)
def test_what_the_second_refuses_is_refused_as_it_does(module: Any, why: str, code: str) -> None:
    from bundle_serving.triton import AskError  # of the stand-in's

    module.ask = Mock(side_effect=AskError(why))
    sure, unsure = answer(module, ask(95), ask(60))
    assert not sure.error and unsure.error.code == code and str(unsure.error) == why
