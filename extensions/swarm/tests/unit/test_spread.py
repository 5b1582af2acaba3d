"""How servers lie on a swarm's nodes."""

import pytest

from extensions.swarm import spread
from extensions.swarm.spread import Node

BOTH = [Node("1", "node1", "ready", True), Node("2", "node2", "ready", True)]


@pytest.mark.parametrize(
    ("counts", "moves"),
    [
        ([], 0),
        ([1], 0),
        ([1, 1], 0),
        ([2, 0], 1),
        ([2, 1], 0),
        ([3, 0], 1),
        ([2, 0, 0], 1),
        ([1, 1, 0], 0),
        ([2, 2, 0], 1),
        ([4, 0, 0], 2),
        ([3, 1, 1], 1),
    ],
)
def test_so_many_are_moved_as_lie_wrong(counts: list[int], moves: int) -> None:
    assert spread.to_move({str(number): count for number, count in enumerate(counts)}) == moves


def test_nothing_is_said_of_what_is_well() -> None:
    on = ["node1", "node2"]
    assert [*spread.problems(BOTH, on, on, 2)] == []
    drained = [BOTH[0], Node("2", "node2", "ready", False)]
    assert [*spread.problems(drained, ["node1", "node1"], ["node1"], 2)] == []


def test_servers_on_one_node_are_named_with_what_spreads_them() -> None:
    (said,) = spread.problems(BOTH, ["node1", "node1"], ["node1", "node2"], 2)
    assert "2 on node1, 0 on node2" in said and "make scale REPLICAS=2" in said


def test_a_node_that_is_down_is_named() -> None:
    down = [BOTH[0], Node("2", "node2", "down", True)]
    said = [*spread.problems(down, ["node1"], ["node1", "node2"], 2)]
    assert said == ["node2 is down: clients get no answer there", "1 of 2 servers run"]


def test_a_node_without_a_balancer_is_named() -> None:
    (said,) = spread.problems(BOTH, ["node1", "node2"], ["node1"], 2)
    assert said.startswith("no balancer runs on node2")
