"""docs/scale.md shows what the model prints, and the model what was measured."""

from __future__ import annotations

import pytest

from benchmark import scale
from scripts.base.paths import ROOT


def test_the_document_has_its_tables() -> None:
    document = (ROOT / "docs" / "scale.md").read_text()
    for table in (scale.agreement(), scale.servers(), scale.million(), scale.fleet()):
        assert table in document


def test_points_of_resnet50_agree() -> None:
    for point in scale.points():
        if "mobilenet" not in point.what:
            assert point.modelled == pytest.approx(point.measured, rel=0.1)


def test_what_ends_a_server() -> None:
    assert scale.Server(2).answers("bf16", scale.SMALL, "HTTP")[1] == "its cores"
    assert scale.Server(64).answers("bf16", scale.SMALL, "HTTP")[1].startswith("the door")
    slow = scale.Server(64, network_gbits=0.1)
    assert slow.answers("bf16", scale.LARGE, "gRPC") == (12.5, "its network card")
    assert scale.Server(64, gpu=100).answers("bf16", scale.SMALL, "gRPC") == (100, "its GPU")
