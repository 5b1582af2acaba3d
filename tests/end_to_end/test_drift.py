"""What a real server says of the classes that its network answers."""

from __future__ import annotations

import urllib.request

import pytest

from benchmark.rollouts import clients
from bundle_door.drift import ANSWERS
from tests.project import Project, wait_until


@pytest.mark.long
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_the_same_pictures_are_no_drift(served: Project) -> None:
    def of(name: str) -> list[float]:
        address = f"http://127.0.0.1:{served.settings['METRICS_PORT']}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{")]

    with clients(served.http, served.grpc, 8):
        indices = wait_until(lambda: of("bundle_answer_drift_index"), "the index", 300)
    assert len(indices) == 2 and max(indices) < 0.1
    assert sum(of("bundle_answer_class_total")) >= 2 * ANSWERS
