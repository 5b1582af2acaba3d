"""What the operator may do to the models in memory."""

from __future__ import annotations

from scripts.server.model_control import only_of
from scripts.server.running import restart


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


def test_a_restart_is_announced_with_the_way_back() -> None:
    now = {"ARCH": "mobilenet_v2", "CORES": "", "WEIGHTS": "default"}
    asked = {"ARCH": "resnet18", "CORES": "2", "WEIGHTS": "default"}
    assert restart(now, asked) == (
        "this restarts the server with ARCH=resnet18 CORES=2; "
        "to go back: make up ARCH=mobilenet_v2 CORES=''"
    )
