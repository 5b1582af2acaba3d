"""A plain Python callable behind Triton."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.project import Project, free_ports, interrupt, wait_until

TEXTS = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates have risen."]


def embed(url: str, raw: bytes) -> np.ndarray:
    client = tritonclient.http.InferenceServerClient(url)
    try:
        tensor = tritonclient.http.InferInput("text", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[raw]], np.object_))
        return client.infer("embedding", [tensor]).as_numpy("embedding")[0]
    finally:
        client.close()


def test_texts_of_one_meaning_lie_together(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    project = Project.copy(tmp_path, EMBEDDINGS_PORT=str(port))
    url = f"127.0.0.1:{port}"

    def answers() -> bool:
        assert make.poll() is None, make.communicate()[0]
        try:
            return embed(url, b"ready?").size > 0
        except (OSError, InferenceServerException):
            return False

    make = project.start_make("embeddings")
    try:
        wait_until(answers, "an embedding", 240)
        with ThreadPoolExecutor(6) as pool:
            found = np.stack(list(pool.map(lambda text: embed(url, text.encode()), TEXTS * 8)))
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        assert np.allclose(found, np.tile(found[:3], (8, 1)), atol=1e-4)
        assert found[0] @ found[1] > 0.5 > 0.2 > found[0] @ found[2]
        with pytest.raises(InferenceServerException, match="not UTF-8"):
            embed(url, b"\xff")
    finally:
        interrupt(make)
