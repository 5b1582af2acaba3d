"""The bundle on ARM64, as far as an x86-64 machine can tell."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.base import layers, wheels
from scripts.base.errors import UserError
from scripts.base.paths import REQUIREMENTS, VENV
from scripts.measuring import perf_analyzer

LAYERS = ("tools", "serve", "layout", "export", "s3", "adopt", "bench")


@pytest.mark.rare
@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_every_package_has_a_wheel_for_it(tmp_path: Path, python: str) -> None:
    """With a known hash, and for Debian 12's C library."""
    variables = bootstrap.for_uv(bootstrap.pip_settings())
    assert variables is not None
    variables.pop(bootstrap.CONSTRAINT, None)
    command: list[str | Path] = [
        VENV / "bin" / "uv",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--no-deps",
    ]
    command += ["--require-hashes", "--only-binary", ":all:", "--target", tmp_path]
    command += ["--index-strategy", "unsafe-best-match"]
    command += ["--python-platform", "aarch64-manylinux_2_36", "--python-version", python]
    for layer in LAYERS:
        with wheels.write_checked(layers.read_locked(layer), REQUIREMENTS) as (file, _):
            done = subprocess.run(
                [*command, "-r", file],
                env=os.environ | variables,
                capture_output=True,
                text=True,
            )
        assert done.returncode == 0, f"{layer}: {done.stderr}"


def test_there_is_no_perf_analyzer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UserError, match="no perf_analyzer for aarch64"):
        perf_analyzer.require("local")
    perf_analyzer.require("gpu")  # whose image has one
