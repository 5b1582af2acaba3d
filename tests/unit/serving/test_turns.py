"""Large pictures wait for each other, in all processes, and small ones for none of them."""

from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from benchmark.torture.odd_pictures import flat_png
from bundle_serving.decoder import Decoder, Pending, gather
from bundle_serving.pictures import Transform
from bundle_serving.process.cores import MAKE_WAY, VARIABLE, Later, Turns
from tests.project import picture

HOW = Transform(resize=32, crop=32, max_megapixels=0.25)
LARGE, SMALL = (np.frombuffer(each, np.uint8) for each in (flat_png((500, 500)), picture()))


def take_elsewhere(file: Path, share: float, at_once: int = 1) -> bool:
    """In another process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(take, (file, share, at_once))


def take(file: Path, share: float, at_once: int) -> bool:
    try:
        Turns(file, at_once).take(share)
    except Later:
        return False
    return True


def test_one_process_at_a_time_decodes_a_large_picture(tmp_path: Path) -> None:
    turns = Turns(tmp_path / "large", at_once=1)
    turns.enter(1)
    turns.take(0.5)
    assert not take_elsewhere(tmp_path / "large", 0.5)
    assert take_elsewhere(tmp_path / "large", 0.2)
    turns.leave()
    assert take_elsewhere(tmp_path / "large", 0.5)  # whose process has ended, and with it its turn
    assert take_elsewhere(tmp_path / "large", 0.5)


def test_as_many_at_once_as_leave_half_of_the_cores(tmp_path: Path) -> None:
    first = Turns(tmp_path / "large", at_once=2)
    first.enter(1)
    first.take(0.5)
    assert take_elsewhere(tmp_path / "large", 0.5, at_once=2)
    assert not take_elsewhere(tmp_path / "large", 0.5, at_once=1)


def test_an_execution_decodes_what_one_request_may_ask_for() -> None:
    turns = Turns()
    turns.enter(9)
    for _ in range(4):
        turns.take(0.25)
    with pytest.raises(Later):
        turns.take(0.1)
    turns.take(0.01)  # small ones are never put off
    for _ in range(9):
        turns.leave()
    turns.enter(1)
    turns.take(0.9)


def count(pending: Pending) -> int:
    try:
        return len(gather(pending))
    except Later:
        return 0


def test_requests_of_one_batch_are_put_off_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/")
    decoder = Decoder(HOW, 2)
    batch = [[LARGE], [SMALL], [LARGE], [SMALL] * 3]
    taken = 0
    for _ in range(MAKE_WAY):
        decoder._turns.enter(1)  # the execution goes on
        begun = [decoder.begin(pictures, may_be_repeated=False) for pictures in batch]
        outcomes = [count(pending) for pending in begun]
        decoder._turns.leave()
        assert outcomes[1] == 1 and outcomes[3] == 3
        taken += outcomes[0] + outcomes[2]
    assert taken == 2 * MAKE_WAY // (MAKE_WAY + 2)
    assert len(gather(decoder.begin([LARGE], may_be_repeated=False, alone=True))) == 1
    decoder.close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "large").symlink_to(tmp_path / "elsewhere")
    Turns(tmp_path / "large").take(0.5)
    assert not (tmp_path / "elsewhere").exists()
