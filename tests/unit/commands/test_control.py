"""What the operator may do to the models in memory."""

from scripts.server.running import explain_unchanged
from scripts.server.triton.models import only_of


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


def test_who_only_asks_is_told_what_would_change() -> None:
    now = {"ARCH": "mobilenet_v2", "CORES": ""}
    asked = {"ARCH": "resnet18", "CORES": "2"}
    assert explain_unchanged(["ARCH", "CORES"], now, asked) == (
        "asking the server as it runs, with ARCH=mobilenet_v2 CORES=''; "
        "to change that: make up ARCH=resnet18 CORES=2"
    )
