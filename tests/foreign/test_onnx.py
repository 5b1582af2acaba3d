"""Networks that were not made here: each is served as it is, or refused with the reason, by all
that `make add-model` does below the server."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.foreign.adopted import adopt_network, outcome
from benchmark.foreign.case import Case, pictures
from benchmark.foreign.graphs import CASES
from scripts.base.errors import UserError
from tests.foreign.expected import require_as_expected
from tests.odd_networks import odd

# One of each kind of trouble; the others are rare.
SHORT = (
    *("a softmax of single operators", "independent labels", "one label, a sigmoid"),
    *("percentages", "batch fixed at 1, with a class token", "channels last", "BGR", "grey"),
    *("levels (uint8)", "framed (letterbox)", "any height and width, not square"),
    *("opset 9, IR 3, weights among the inputs", "weights in another file", "names like ours"),
    *("8 bits (QDQ, signed)", "ONNX Runtime's s16s8, auto", "scores divided by their length"),
    "logarithms of independent labels",
    *(
        "an output [classes, batch]",
        "[5] for one picture",
        "scores in levels",
        "the best three",
        "a maximum beside a label",
    ),
    *("an embedding beside a label", "a detector's scores beside its boxes"),
)
ODD, SHORT_ODD = 200, 25


def some(case: Case) -> object:
    marks = () if case.name in SHORT else (pytest.mark.rare,)
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [some(case) for case in CASES])
def test_a_network_is_served_as_it_is_or_refused(case: Case, tmp_path: Path) -> None:
    require_as_expected(case, tmp_path)


@pytest.mark.parametrize(
    "numbers",
    [range(SHORT_ODD), pytest.param(range(SHORT_ODD, ODD), marks=pytest.mark.rare)],
    ids=["some", "the others"],
)
def test_what_is_broken_is_refused_in_one_line(numbers: range, tmp_path: Path) -> None:
    """Or it is served as ONNX Runtime computes it: then its own check has passed."""
    served = 0
    for number in numbers:
        done = odd(number, tmp_path / f"{number}.onnx")
        try:
            (folder := tmp_path / str(number)).mkdir()
            adopt_network({"ONNX": str(tmp_path / f"{number}.onnx")}, folder)
            served += 1
        except UserError as refusal:
            message = f"{refusal.cause}; {refusal.remedy}"
            assert "\n" not in message and len(message) < 700, done
        except Exception as fault:
            raise AssertionError(done) from fault
    assert 0 < served < len(numbers) / 2


@pytest.mark.parametrize("least", [2, 5])
def test_a_branch_by_the_batch_is_never_taken(least: int, tmp_path: Path) -> None:
    name = f"a branch by the batch, from {least} on"
    (case,) = (each for each in CASES if each.name == name)
    found = outcome(case, tmp_path, pictures(4))
    assert found.is_served and not found.together and found.difference < case.bound


def test_what_has_branches_gets_no_more_pictures_than_were_compared(tmp_path: Path) -> None:
    (case,) = (each for each in CASES if each.name == "a branch")
    case.make(tmp_path)
    recipe, _ = adopt_network(case.make_settings(tmp_path), tmp_path)
    assert recipe.most == 8


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_networks_in_eight_bits(precision: str, tmp_path: Path) -> None:
    """OpenVINO rounds them otherwise than they are written, and by more than other networks may
    differ."""
    from benchmark.foreign import libraries  # which loads PyTorch

    (case,) = (each for each in libraries.CASES if "ONNX Runtime's u8s8" in each.name)
    options = {**case.options, "PRECISION": precision}
    require_as_expected(replace(case, options=options), tmp_path)


def test_every_short_case_exists() -> None:
    assert {*SHORT} <= {case.name for case in CASES}
