"""The embedder without a server: what it answers, and what it gives up at."""

import resource
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import Mock

import numpy as np
import pytest

from bundle_serving import work
from bundle_serving.pictures import Transform
from extensions.similar.service import PROGRAM
from extensions.similar.serving.embeddings import Embedder, EngineFailed
from scripts.artefacts.manifest import Manifest
from tests.networks import SIDE, means
from tests.project import ROOT, picture
from tests.python_backend import Tensor, program


@pytest.fixture(params=["output", "embedding"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also as releases up to 1.5.0 exported it."""
    return means(tmp_path, request.param)


def embedder(made: Path, max_megapixels: float = 50) -> Embedder:
    transform = Manifest.of_export(made).transform
    return Embedder(made, Transform(**transform, max_megapixels=max_megapixels), 2)


def ask(embedder: Embedder, *batches: list[bytes]) -> list[dict[str, Any]]:
    """As Triton asks: requests of one or more pictures, together."""
    answers: list[dict[str, Any]] = embedder([np.array(files, np.object_) for files in batches])
    return answers


def test_a_refused_picture_is_marked_and_its_neighbours_are_answered(made: Path) -> None:
    one, both, none = ask(
        embedder(made), [picture()], [b"Dear Sir", picture(kind="PNG")], [b"", b"or Madam"]
    )
    for answer, refused in ((one, [False]), (both, [True, False]), (none, [True, True])):
        lengths = np.linalg.norm(answer["embedding"], axis=1)
        assert np.allclose(lengths, np.logical_not(refused), atol=1e-5)
        assert [bool(error) for (error,) in answer["error"]] == refused
        assert {network for (network,) in answer["network"]} == {
            b"means, weights random (untrained)"
        }
    assert b"not a readable picture" in both["error"][0, 0] and b"; send" in both["error"][0, 0]


def test_the_pictures_of_a_request_are_bounded_together(made: Path) -> None:
    bounded = embedder(made, max_megapixels=0.1)
    few, many = ask(bounded, [picture((300, 300))] * 2, [picture((300, 300))] * 10)
    assert not any(few["error"].ravel())
    assert all(b"pictures of this request have 1 megapix" in each for each in many["error"].ravel())


def test_the_rows_of_a_slow_network_are_bounded(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "NETWORK_S", 0.0)
    few, many = ask(embedder(made), [picture()] * work.ROWS, [picture()] * (work.ROWS + 1))
    assert not any(few["error"].ravel())
    assert all(b"the limit of this network is 32" in each for each in many["error"].ravel())


def test_what_fails_in_the_engine_cannot_be_recovered_from(made: Path) -> None:
    """In a process of its own, which is left with too little memory for a large batch."""
    code = (
        f"from extensions.similar.tests.unit.test_embeddings import *; starve(Path({str(made)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "unrecoverable\n", done.stderr


def starve(made: Path) -> None:
    small = embedder(made)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    pixels = [np.zeros((3, SIDE, SIDE), np.uint8)] * 200_000  # together 600 MB
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**24, taken + 2**24))
    try:
        small._run(pixels)
    except EngineFailed:
        print("unrecoverable")


class Broken:
    """In the place of the embedder."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def __call__(self, _: object) -> NoReturn:
        raise self._fault


@pytest.mark.parametrize("is_broken", [True, False])
def test_only_an_engine_that_failed_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The keeper then reloads the model; until then, all are told to try again."""
    timer = Mock()
    monkeypatch.setattr(threading, "Timer", timer)
    (tmp_path / "model.py").write_text(PROGRAM)
    with program(tmp_path, []) as module:
        model = module.TritonPythonModel()
        ours: Any = import_module("bundle_serving.embeddings")
        fault = ours.EngineFailed("no memory") if is_broken else ValueError("odd")
        model._embed = Broken(fault)
        asked = {"image": Tensor("image", np.array([[picture()]], np.object_))}
        one, other = model.execute([asked, asked])
    for each in (one, other):
        assert each.error.code == ("UNAVAILABLE" if is_broken else "INTERNAL")
        assert str(fault) in str(each.error)
    assert timer.called == is_broken
