"""Packages are installed in the pinned versions, each file checked by its hash."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import pins
from scripts.base import layers, wheels
from scripts.base.paths import REQUIREMENTS

CONSTRAINTS = layers.CONSTRAINTS.read_text()


def direct(layer: str) -> set[str]:
    """The packages that a layer's files name, and those of the layers that it includes."""
    names = layers.find_included(layer)
    text = "\n".join(file.read_text() for name in names for file in layers.find_files(name))
    return {wheels.name_of(name) for name in re.findall(r"^(\w[\w.-]*)", text, re.MULTILINE)}


@pytest.mark.parametrize("layer", sorted({file.stem for file in layers.list_resolved()}))
def test_all_that_a_layer_brings_along_is_pinned_and_has_hashes(layer: str) -> None:
    pinned = {
        f"{wheels.name_of(name)}=={version}"
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", CONSTRAINTS, re.MULTILINE)
    }
    lines = layers.read_locked(layer)
    listed = {f"{name}=={version}" for name, version, _ in map(wheels.parts, lines)}
    assert direct(layer) <= {each.partition("==")[0] for each in listed}
    assert listed <= pinned
    with wheels.write_checked(lines, REQUIREMENTS) as (file, without):
        text = file.read_text().splitlines()
        assert len(text) + len(without) == len(lines)
        assert all("--hash=sha256:" in line for line in text)
        assert {wheels.parts(line)[0] for line in without} <= {"torch", "torchvision"}


def wheel(folder: Path, content: str) -> Path:
    """The smallest that pip installs."""
    path, about = folder / "tiny-1.0-py3-none-any.whl", "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", content)
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")
    return path


def test_a_file_that_is_another_one_is_not_installed(tmp_path: Path) -> None:
    content = wheel(tmp_path, "one").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    locked = tmp_path / "requirements" / "locked"
    locked.mkdir(parents=True)
    (locked / "a.txt").write_text("tiny==1.0 ; python_version > '3'\n")
    (locked / "hashes.txt").write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    command: list[str | Path] = [sys.executable, wheels.__file__]
    command += [tmp_path / "requirements", "a", "--no-index"]
    command += ["--find-links", tmp_path, "--target", tmp_path / "to"]
    other = wheel(tmp_path, "another")
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode and "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "to" / "tiny.py").exists()
    other.write_bytes(content)
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert (tmp_path / "to" / "tiny.py").read_text() == "one"


def test_what_has_no_hash_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "hashes.txt").write_text("")
    with (
        pytest.raises(wheels.NoHash, match=r"tiny==1\.0 has no hash .*; write it: make pins"),
        wheels.write_checked(["tiny==1.0"], tmp_path),
    ):
        pass


def test_new_versions_take_the_places_of_the_old_ones() -> None:
    before = (
        '# Every version\nnumpy==1.26.4; python_version < "3.13"   # the last\n'
        'numpy==2.3.5; python_version >= "3.13"\nJinja2==3.1.6\nsix==1.17.0\n'
    )
    resolved = ["numpy==1.26.4 ; a", "numpy==2.5.5 ; b", "jinja2==3.2.0", "attrs==26.1.0"]
    after = pins.update_versions(before, resolved)
    assert after == (
        '# Every version\nnumpy==1.26.4; python_version < "3.13"   # the last\n'
        'numpy==2.5.5; python_version >= "3.13"\nattrs==26.1.0\nJinja2==3.2.0\n'
    )
    assert list(pins.changes(before, after)) == [
        "attrs: new -> 26.1.0",
        "Jinja2: 3.1.6 -> 3.2.0",
        "numpy: 2.3.5 -> 2.5.5",
        "six: 1.17.0 -> not needed any more",
    ]


def test_only_what_was_asked_for_changes() -> None:
    stays = pins.staying("numpy==1.26.4\nruff==0.17.5\n", ["Ruff"])
    assert stays == "numpy==1.26.4\n"
    assert pins.staying("torch==2.13.0\nsix==1.17.0\n", ()) == "torch==2.13.0+cpu\nsix==1.17.0\n"
