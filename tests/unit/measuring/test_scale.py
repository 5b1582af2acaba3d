"""docs/measuring/scale.md shows what the model prints, and the model what was measured."""

import pytest
import yaml

from benchmark import scale
from scripts.base.paths import ROOT


def test_the_document_has_its_tables() -> None:
    document = (ROOT / "docs" / "measuring" / "scale.md").read_text()
    for table in (scale.agreement(), scale.servers(), scale.million(), scale.load(), scale.fleet()):
        assert table in document


def test_points_of_resnet50_agree() -> None:
    points = [each for each in scale.points() if "mobilenet" not in each.what]
    assert len(points) == 6
    for point in points:
        assert point.modelled == pytest.approx(point.measured, rel=0.1)


@pytest.mark.parametrize("cores", [2, 4, 8, 16])
def test_more_servers_come_before_a_server_is_busy(cores: int) -> None:
    """By KEDA, which counts requests in flight a core."""
    keda = ROOT / "deploy" / "kubernetes" / "components" / "keda" / "scaledobject.yaml"
    (trigger,) = yaml.safe_load(keda.read_text())["spec"]["triggers"]
    in_flight = float(trigger["metadata"]["threshold"]) * cores
    assert scale.in_flight(cores, 0.5) < in_flight < scale.in_flight(cores, 0.8)


def test_how_many_are_in_flight() -> None:
    assert scale.in_flight(1, 0.5) == pytest.approx(0.75)  # Pollaczek and Khinchine
    assert scale.in_flight(100, 0.5) == pytest.approx(50)


def test_what_ends_a_server() -> None:
    assert scale.Server(2).answers("bf16", scale.SMALL, "HTTP")[1] == "its cores"
    busy = scale.Server(16, gpu=1e5, network_gbits=100, dali=True)
    assert busy.answers("bf16", scale.SMALL, "HTTP")[1] == "the door's processes"
    slow = scale.Server(64, network_gbits=0.1)
    assert slow.answers("bf16", scale.LARGE, "gRPC") == (12.5, "its network card")
    assert scale.Server(64, gpu=100).answers("bf16", scale.SMALL, "gRPC") == (100, "its GPU")
