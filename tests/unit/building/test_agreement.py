"""Whether a whole answer says the same as another one."""

from pathlib import Path

import numpy as np
import pytest

from bundle_serving.agreement import Bound, compare, of_answers
from bundle_serving.infer import Answer
from bundle_serving.pictures import PictureError
from scripts.base.errors import UserError
from scripts.steps import checked, gate
from scripts.steps.engine import BOUNDS

BOUND = Bound(0.05)


def scores(*values: float) -> Answer:
    return {"OUTPUT": np.array([values], np.float32)}


def texts(*entries: bytes) -> Answer:
    return {"RESULT": np.array([entries])}


@pytest.mark.parametrize(
    ("known", "seen", "alike"),
    [
        (scores(0.7, 0.2, 0.1), scores(0.68, 0.22, 0.1), True),
        (scores(0.7, 0.2, 0.1), scores(0.6, 0.3, 0.1), False),
        (scores(0.41, 0.4, 0.19), scores(0.4, 0.41, 0.19), True),
        (scores(0.5, 0.3, 0.2), scores(0.3, 0.5, 0.2), False),
        (scores(0.7, 0.2, 0.1), scores(0.7, 0.2, np.nan), False),
        (scores(0.7, 0.3), scores(0.7, 0.3, 0.0), False),
        (scores(12000.0, 3.0), scores(12001.0, 3.0), True),
        (scores(0.7), {"OTHER": np.array([[0.7]])}, False),
        (texts(b"0.6:1:a", b"0.3:2:b"), texts(b"0.59:1:a", b"0.31:2:b"), True),
        (texts(b"0.6:1:a", b"0.2:2:b"), texts(b"0.61:1:a", b"0.2:3:c"), False),
        (texts(b"0.6:1:a", b"0.02:2:b"), texts(b"0.61:1:a", b"0.02:3:c"), True),
        (texts(b"positive"), texts(b"positive"), True),
        (texts(b"positive"), texts(b"negative"), False),
        (texts(b"0.6:1:a"), scores(0.6), False),
    ],
)
def test_answers_that_say_the_same(known: Answer, seen: Answer, alike: bool) -> None:
    assert of_answers([known], [seen]).within(BOUND) == alike


def test_one_of_many_may_differ_where_the_bound_says_so() -> None:
    known = [texts(b"positive")] * 10
    seen = [texts(b"negative"), *known[1:]]
    assert not of_answers(known, seen).within(BOUND)
    assert of_answers(known, seen).within(Bound(0.05, top1=0.9))


def test_the_only_one_may_not_differ() -> None:
    wrong = of_answers([{"OUTPUT": np.array([[0.9, 0.1]])}], [{"OUTPUT": np.array([[0.1, 0.9]])}])
    bound = gate.for_the_ensemble(BOUNDS["bf16"], wrong.pictures)
    assert not wrong.within(bound)


def test_nothing_was_asked() -> None:
    assert of_answers([], []).within(BOUND)


def test_what_it_says_is_true_of_texts_and_sounds_too() -> None:
    scores = np.array([[0.0, 5.0], [5.0, 0.0]], np.float32)
    assert str(compare(scores, scores)) == "top-1 equal on 2 of 2, probabilities within 0"


def test_weights_that_give_no_numbers_are_no_fault_of_the_conversion(tmp_path: Path) -> None:
    made = checked.Made({}, False, {}, ["a", "b"], {}, "PyTorch")
    asked, given = checked.Shown([], np.zeros((1, 3, 4, 4))), np.array([[0.5, np.nan]])
    with pytest.raises(UserError, match="gives NaN or infinity for a picture"):
        checked.finish(tmp_path, made, asked, given, BOUND)


def test_what_a_program_refuses_in_the_check_is_for_its_author(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise PictureError("the picture is refused (too dark); send another one")

    monkeypatch.setattr(checked, "pictures", refuse)
    with pytest.raises(UserError, match="too dark") as refused:
        checked.show_pictures(None, {"crop": 8, "resize": 8})
    assert refused.value.remedy.startswith("correct pre.py")
