"""The alert that the page shows counts requests in flight a core, as KEDA does."""

from pathlib import Path

import yaml

from tests.project import ROOT


def test_more_servers_are_wanted_when_keda_would_start_them() -> None:
    keda = ROOT / "deploy" / "kubernetes" / "components" / "keda" / "scaledobject.yaml"
    (trigger,) = yaml.safe_load(keda.read_text())["spec"]["triggers"]
    page = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"> {trigger['metadata']['threshold']} * CORES" in page
