"""A model of tables as the main pipeline."""

import re
from pathlib import Path

import pytest

from scripts.measuring.perf_analyzer import has_libb64
from tests.end_to_end.own.test_own_main import fresh, list_models
from tests.project import Project, error_lines
from tests.tables import NAMES, ROLLED, trained

__all__ = ["fresh"]  # a fixture
pytestmark = pytest.mark.rare


def test_every_command_means_it(fresh: Project, tmp_path: Path) -> None:
    fresh.settings["SAMPLES"] = ""  # pictures
    for seed, name in enumerate(("flowers", "second")):
        trained(tmp_path / f"{name}.json", seed)
    (tmp_path / "rows.csv").write_text(f"{','.join(NAMES)}\n0.5,-1,1.5\n2.5,2,\n")
    (tmp_path / "val.csv").write_text(f"{','.join(NAMES)},target\n0.5,-1,1.5,0\n2.5,2,,2\n")
    said = fresh.made("up", FROM=f"{tmp_path}/flowers.json")
    assert not [model for model in list_models(fresh) if not model.startswith("flowers")]
    assert "%" in fresh.made("ask", IN=f"{tmp_path}/rows.csv")
    for command in ("classify", "trace"):
        (line,) = error_lines(fresh.make(command, IMG=f"{tmp_path}/photo.jpg").stderr)
        assert "IMG is given, which this pipeline does not take; give IN=… instead" in line
    for given in ({}, {"IN": f"{tmp_path}/rows.csv"}):
        assert re.search(r"^step +flowers", fresh.made("trace", **given), re.MULTILINE)
    said += fresh.made("status") + fresh.made("models")
    said += fresh.made("eval", EVAL=f"{tmp_path}/val.csv")
    if has_libb64():
        said += fresh.made("bench", QUICK="1")
        said += fresh.made("tune", MINUTES="0.05", STOP="1")
    (line,) = error_lines(fresh.make("publish", WEIGHTS=f"{tmp_path}/birds.onnx").stderr)
    assert "birds.onnx is no model of a table" in line
    said += fresh.made("publish", WEIGHTS=f"{tmp_path}/second.json")
    assert "version 2 is live" in fresh.made("rollout", **ROLLED)
    assert "version 1 is live" in fresh.made("rollback", **ROLLED)
    assert "resnet" not in said
