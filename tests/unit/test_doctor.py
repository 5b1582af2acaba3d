"""What `make doctor` looks for, as far as no machine has to lack it."""

from __future__ import annotations

from pathlib import Path

from scripts.base.findings import FAILURE, OK, room

MORE_THAN_ANYONE_HAS_GB = 10**9


def test_room_is_only_wanted_for_what_is_not_made_yet(tmp_path: Path) -> None:
    asked = [room("disk", tmp_path, MORE_THAN_ANYONE_HAS_GB, made) for made in (True, False)]
    assert [found.verdict for found in asked] == [OK, FAILURE]
    assert str(tmp_path) in asked[1].detail and "make room" in asked[1].fix
