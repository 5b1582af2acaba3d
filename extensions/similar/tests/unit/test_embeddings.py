"""The callable without PyTriton's server: what it answers, and what it gives up at."""

import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.proxy.types import Request

from bundle_serving import work
from bundle_serving.pictures import Transform
from extensions.similar.serving.embeddings import Embedder, Network
from tests.networks import SIDE, means
from tests.project import ROOT, picture


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return means(tmp_path)


def embedder(made: Path) -> Embedder:
    network = Network.load(made)
    return Embedder(network, Transform(**network.transform), 1, ThreadPoolExecutor(2))


def ask(embedder: Embedder, *batches: list[bytes]) -> list[dict[str, Any]]:
    """As PyTriton asks: requests of one or more pictures, together."""
    requests = [
        Request(data={"image": np.array([[file] for file in files], np.object_)})
        for files in batches
    ]
    answers: list[dict[str, Any]] = embedder(requests)
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
    transform = Transform(**Network.load(made).transform, max_megapixels=0.1)
    bounded = Embedder(Network.load(made), transform, 1, ThreadPoolExecutor(2))
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
    except PyTritonUnrecoverableError:
        print("unrecoverable")
