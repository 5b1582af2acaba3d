"""Detectors of transformers, by all that `make add-model` does below the server."""

from pathlib import Path

import pytest

from benchmark.foreign.case import Case
from kinds.detection.foreign import CASES, KINDS
from tests.foreign.expected import require_as_expected
from tests.pipelines import of_mixed_sizes

# What is refused costs nothing, and one of the others is enough before a change lands.
FOUND = {f"{kind}ForObjectDetection": pytest.mark.rare for kind in KINDS}
FOUND["YolosForObjectDetection"] = pytest.mark.long


def some(case: Case) -> object:
    marks = (FOUND[case.name],) if case.name in FOUND else ()
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [some(case) for case in CASES])
def test_it_finds_what_transformers_finds_or_is_refused(case: Case, tmp_path: Path) -> None:
    files = [photo.read_bytes() for photo in of_mixed_sizes(tmp_path)]
    (folder := tmp_path / "detector").mkdir()
    require_as_expected(case, folder, files)
