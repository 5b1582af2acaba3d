"""A video's labels are those of the network that is live."""

from pathlib import Path

from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository import model_folders
from tests.unit.building.test_pipeline import artefact, laid_out, made, repository

__all__ = ["artefact", "made", "repository"]


def test_a_video_has_the_labels_of_the_network_that_is_live(
    made: Workspace, repository: Path
) -> None:
    labels = repository / "video" / "labels.txt"
    laid_out(made, repository)
    assert not labels.exists()  # nothing is served of it
    files.write(labels, "of another network\n")
    first = pipelines.main()
    assert model_folders.write_labels(first, made, CPU, repository) == ["video"]
    assert labels.read_text() == (repository / PIPELINE / "labels.txt").read_text()
    assert model_folders.write_labels(first, made, CPU, repository) == []
