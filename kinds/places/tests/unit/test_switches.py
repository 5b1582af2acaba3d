"""A recipe's own switches, where one network has one name on both engines."""

from pathlib import Path

from scripts.artefacts.workspace import Workspace
from scripts.recipes.layout import CPU, Decoding, Layout, Share
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.schema import load
from scripts.repository import model_folders
from tests.project import ROOT


def test_what_is_switched_is_the_config_of_this_engine(tmp_path: Path) -> None:
    """Places' network has one name on both."""
    places = load(ROOT / "kinds" / "places" / "places.yaml")
    network = str(places.network_model(CPU))
    switched = places.model_copy(update={"triton": {network: {"optimization": {"priority": 1}}}})
    repository = tmp_path / "live"
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "labels.txt").write_text("a place\n")
    layout = Layout(CPU, Decoding(), Share(1, 1), Share(1, 1))
    model_folders.furnish(Pipeline("places", switched), repository)
    model_folders.configure(Pipeline("places", switched), Workspace(tmp_path), layout, repository)
    served = model_folders.config_in_use(repository, network, CPU)
    assert served.backend == "onnxruntime" and served.optimization.priority == 1
