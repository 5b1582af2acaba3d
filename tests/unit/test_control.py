"""What the operator may do to the models in memory."""

from __future__ import annotations

from scripts.server.model_control import only_of


def test_with_an_ensemble_goes_what_no_other_takes() -> None:
    steps = {
        "pictures": {"decode", "network"},
        "cascade": {"decode", "small", "choose"},
        "again": {"small", "pictures"},
    }
    assert only_of("cascade", steps) == ["choose"]
    del steps["again"]
    assert only_of("cascade", steps) == ["choose", "small"]
    assert only_of("network", steps) == []
