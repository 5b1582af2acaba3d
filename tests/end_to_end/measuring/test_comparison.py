"""The contenders are fair: the same network, and so the same answer; and they leave nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.networks import draw_network
from tests.project import ASSETS, Project, error_lines, interrupt, picture, wait_until


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Project]:
    """A server that is up, and answers to the digit what PyTorch does."""
    made = Project.copy(
        tmp_path_factory.mktemp("comparison"), FLAVOUR="local", PRECISION="fp32", DECODE="full"
    )
    made.take(exported)
    made.made("up")
    yield made
    made.end()


@pytest.fixture
def photo(tmp_path: Path) -> str:
    if ASSETS:
        return str(ASSETS / "images" / "mug.jpg")
    (tmp_path / "noise.jpg").write_bytes(picture())
    return str(tmp_path / "noise.jpg")


@pytest.mark.rare
def test_all_see_the_same_on_a_photo(project: Project, photo: str) -> None:
    only = "textbook,fastapi,bundle-grpc,bundle-socket,alone"
    project.made("rivals", QUICK="1", IMAGES=photo, ONLY=only, DRAFT="1")
    found = json.loads(find_records(project)[-1].read_text())
    (labels,) = found["labels"].values()
    assert labels.keys() == {"bundle", *only.split(",")}
    assert len(set(labels.values())) == 1, labels
    assert {each["contender"] for each in found["results"]} == labels.keys()
    assert all(each["images_per_second"]["median"] > 0 for each in found["results"])
    assert project.temporary_servers() == []
    project.made("status")  # the bundle's own was up before, and still is


def find_records(project: Project) -> list[Path]:
    return sorted((project.path / "build" / "rivals").glob("*-*.json"))


@pytest.mark.rare
def test_precisions_in_turn(project: Project, photo: str) -> None:
    """One that the network or this processor has not is left out; the server is as it was."""
    before = find_records(project)
    settings = {"MINUTES": "0.1", "IMAGES": photo, "ONLY": "alone", "JSON": "1"}
    told = project.made("rivals", PRECISIONS="bf16,fp32", **settings)
    found = [json.loads(path.read_text()) for path in find_records(project)[len(before) :]]
    precisions = [each["settings"]["PRECISION"] for each in found]
    assert precisions == (["fp32"] if "bf16 is left out" in told else ["bf16", "fp32"])
    rows = [json.loads(line) for line in told.splitlines() if '"contender"' in line]
    assert len(rows) == 2 * 3 * len(precisions)  # alone and the bundle; of 1, 4 and 8 clients
    assert "fp32" in project.made("status")


def test_an_unknown_precision_is_one_line(project: Project) -> None:
    refused = project.make("rivals", PRECISIONS="fp32,int5")
    (line,) = error_lines(refused.stderr)
    assert "PRECISION=int5" in line


@pytest.mark.rare
def test_a_network_of_ones_own(tmp_path: Path, photo: str) -> None:
    draw_network(tmp_path / "birds.onnx")
    settings = {"FLAVOUR": "local", "ARCH": "", "WEIGHTS": ""}
    own = Project.copy(tmp_path / "own", **settings)
    try:
        own.made("up", FROM=str(tmp_path / "birds.onnx"), PRECISION="fp32", DECODE="full")
        output = own.made("rivals", QUICK="1", IMAGES=photo, ONLY="textbook,alone")
        assert "birds" in output and "textbook" in output
    finally:
        own.end()


def test_ctrl_c_leaves_nothing(project: Project, photo: str) -> None:
    make = project.start_make("rivals", IMAGES=photo, ONLY="textbook")
    wait_until(project.temporary_servers, "the textbook's server")
    output = interrupt(make)
    assert "interrupted" in output and "Traceback" not in output
    assert project.temporary_servers() == []
    project.made("status")


def test_an_unknown_contender_is_one_line(project: Project) -> None:
    refused = project.make("rivals", ONLY="nginx")
    (line,) = error_lines(refused.stderr)
    assert "ONLY=nginx" in line and "textbook" in line
