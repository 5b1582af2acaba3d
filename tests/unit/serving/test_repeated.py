"""Answers to inputs that come again."""

import numpy as np
import pytest

from bundle_keeper.asking import question
from bundle_serving.protocol.kserve import ModelConfig
from bundle_serving.repeated import KEPT_WITH_IT, Batch, Repeated, may_be_repeated


class Doubling:
    """A network that counts its rows, and overwrites its output like OpenVINO."""

    def __init__(self) -> None:
        self.rows = 0
        self.buffer = np.zeros((8, 2), np.float32)

    def __call__(self, batch: Batch) -> Batch:
        given = batch["in"]
        self.rows += len(given)
        self.buffer[: len(given)] = 2 * given
        return {"out": self.buffer[: len(given)]}


def asked(known: Repeated, network: Doubling, *rows: float, may: bool = True) -> list[float]:
    batch = {"in": np.array([[row, row] for row in rows], np.float32)}
    return [float(row[0]) for row in known.rows(network, batch, [may] * len(rows))["out"]]


def test_only_rows_that_are_not_known_are_computed() -> None:
    known, network = Repeated(1), Doubling()
    assert asked(known, network, 1, 2, 3) == [2, 4, 6]
    assert asked(known, network, 3, 4, 1) == [6, 8, 2]
    assert network.rows == 4
    assert asked(known, network, 4, 3, 2, 1) == [8, 6, 4, 2]
    assert network.rows == 4


def test_who_wants_it_computed_gets_it_computed() -> None:
    known, network = Repeated(1), Doubling()
    asked(known, network, 1)
    assert asked(known, network, 1, 5, may=False) == [2, 10]
    assert asked(known, network, 5) == [10]  # which was not kept
    assert network.rows == 4


def test_without_memory_nothing_is_kept() -> None:
    known, network = Repeated(0), Doubling()
    asked(known, network, 1)
    asked(known, network, 1)
    assert network.rows == 2


def test_the_oldest_go() -> None:
    known, network = Repeated(3 * (KEPT_WITH_IT + 8) / 1e6), Doubling()
    asked(known, network, 1, 2, 3)
    asked(known, network, 1)  # which makes 2 the oldest
    asked(known, network, 4)
    assert network.rows == 4
    asked(known, network, 1, 3, 4)
    assert network.rows == 4
    asked(known, network, 2)
    assert network.rows == 5


def test_a_failure_is_not_kept() -> None:
    known = Repeated(1)
    picture = np.zeros((1, 3), np.uint8)

    def failed(batch: Batch) -> Batch:
        raise ValueError("not a picture")

    for _ in range(2):
        with pytest.raises(ValueError, match="not a picture"):
            known.rows(failed, {"in": picture}, [True])
    found = known.rows(lambda batch: {"out": batch["in"] + 1}, {"in": picture}, [True])
    assert found["out"].tolist() == [[1, 1, 1]]


def test_the_same_bytes_in_another_shape_are_another_input() -> None:
    known, seen = Repeated(1), []

    def compute(batch: Batch) -> Batch:
        seen.append(batch["in"].shape)
        return {"out": batch["in"].sum(axis=2)}

    for shape in ((1, 2, 6), (1, 3, 4)):
        known.rows(compute, {"in": np.zeros(shape, np.float32)}, [True])
    assert seen == [(1, 2, 6), (1, 3, 4)]


class Request:
    def __init__(self, parameters: str) -> None:
        self.parameters = lambda: parameters


@pytest.mark.parametrize(
    ("parameters", "may"),
    [("", True), ("{}", True), ('{"cache": false}', False), ('{"cache": true, "a": 1}', True)],
)
def test_a_parameter_says_whether_a_known_answer_will_do(parameters: str, may: bool) -> None:
    assert may_be_repeated(Request(parameters)) is may


def test_the_keeper_wants_its_question_computed() -> None:
    config = ModelConfig(name="m")
    config.input.add(name="INPUT", data_type="TYPE_UINT8", dims=[-1])
    asked = question(config, "own")
    assert asked.parameters["cache"].WhichOneof("parameter_choice") == "bool_param"
    assert not asked.parameters["cache"].bool_param
