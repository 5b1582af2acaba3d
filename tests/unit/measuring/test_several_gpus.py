"""What is concluded from minutes of load on several GPUs."""

import pytest

from benchmark.several_gpus import Looks, parse, require_all_busy, require_steady
from scripts.base.errors import UserError


def test_what_nvidia_smi_says_is_read() -> None:
    assert parse("0, 93\n1, 7\n") == {"0": 93, "1": 7}
    assert parse("0, [N/A]\n1, 7\n") == {"1": 7}
    assert parse("Failed to initialize NVML: Unknown Error\n") == {}


def test_one_that_idles_from_some_time_on_starves() -> None:
    """However busy it was before."""
    both, one = {"0": 90.0, "1": 88.0}, {"0": 99.0, "1": 0.0}
    require_all_busy(Looks([both] * 4).busy())
    with pytest.raises(UserError, match="GPU 1 starves: it was busy for 0% of the time, another"):
        require_all_busy(Looks([both] * 4 + [one] * 5).busy())


@pytest.mark.parametrize("looks", [[], [{"0": 0.0, "1": 0.0}]])
def test_where_none_was_seen_to_be_busy_nothing_is_known(looks: list[dict[str, float]]) -> None:
    with pytest.raises(UserError, match="does not say that a GPU was busy"):
        require_all_busy(Looks([*looks]).busy())


def test_what_stays_slower_is_told_from_what_passes() -> None:
    require_steady([100, 110, 20, 90])
    with pytest.raises(UserError, match="became slower: 100, then at most 50 pictures a second"):
        require_steady([100, 100, 50, 40])
