"""Triton gets the keys of a role for a token (keyless.py), and may what the role may."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.base.paths import PYTHON


@pytest.mark.parametrize(("more", "loads"), [((), True), (("--may-not-read",), False)])
def test_a_role_reads_instead_of_a_key(more: tuple[str, ...], loads: bool, tmp_path: Path) -> None:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("AWS's name cannot lead here: that needs root and unshare")
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    command = [*alone, str(PYTHON), "-m", "extensions.s3.tests.keyless", str(tmp_path), *more]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ("('m', '')" in ran.stdout) == loads, ran.stdout
