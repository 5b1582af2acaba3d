"""The simulation of a server with many cores: what must hold whatever it is fed with."""

import pytest

from benchmark.simulated.cores import Service, simulate
from scripts.recipes.layout import Share

# By a second thread a network wins a half; a batch wins nothing.
SERVICE = Service(
    decode=4,
    network={(threads, size): size * (8, 6)[threads - 1] for threads in (1, 2) for size in (1, 4)},
    around=2,
)
ALONE = 1000 / (4 + 8 + 2)  # pictures a second of one core


def rate(cores: int, instances: int, threads: int, clients: int) -> float:
    return simulate(SERVICE, cores, Share(instances, threads), clients).rate


@pytest.mark.parametrize("clients", [1, 4, 16])
def test_a_core_is_never_idle_and_does_one_thing_at_a_time(clients: int) -> None:
    assert rate(1, 1, 1, clients) == pytest.approx(ALONE, rel=0.02)


@pytest.mark.parametrize("cores", [2, 8, 32])
def test_cores_answer_as_many_times_what_one_does(cores: int) -> None:
    assert rate(cores, cores, 1, 4 * cores) == pytest.approx(cores * ALONE, rel=0.05)
    assert rate(cores, 1, 1, 4 * cores) < cores * ALONE


def test_threads_answer_one_sooner_and_all_together_later() -> None:
    one, two = (simulate(SERVICE, 8, Share(8, threads), 1).p50 for threads in (1, 2))
    assert two == pytest.approx(one - 2, rel=0.03)
    assert rate(8, 4, 2, 32) < rate(8, 8, 1, 32)


def test_more_threads_share_what_two_do() -> None:
    assert [SERVICE.compute(threads, 1) for threads in (1, 2, 4)] == [8, 6, 5]
    assert SERVICE.compute(2, 3) == 18 and SERVICE.compute(1, 8) == 64
