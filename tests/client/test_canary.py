"""A new version on trial: its share of the requests, and no harm where it is gone."""

from __future__ import annotations

from bundle_client.transport.canary import Canary, share


def config(percent: str) -> dict[str, object]:
    return {"parameters": {"share": {"string_value": percent}}}


def test_the_share_is_read_over_both_protocols() -> None:
    assert share(config("10")) == 0.1
    assert share({"config": config("25")}) == 0.25
    others: list[dict[str, object]] = [{}, {"parameters": {}}, config("some")]
    for other in others:
        assert share(other) == 0


def test_the_candidate_gets_its_share_and_the_model_stands_behind_it() -> None:
    canary = Canary("network")
    assert canary.is_due() and canary.models() == ("network",)
    canary.update(config("50"))
    assert not canary.is_due()
    chosen = [canary.models() for _ in range(1000)]
    assert set(chosen) == {("network",), ("network_candidate", "network")}
    assert 400 < chosen.count(("network",)) < 600
    canary.update(None)
    assert {canary.models() for _ in range(100)} == {("network",)}
