"""What `make doctor` looks for, as far as no machine has to lack it."""

import os
from pathlib import Path

import pytest

from scripts.base.findings import FAILURE, OK, WARNING, disks, room
from scripts.recipes import pipelines
from scripts.settings.settings import Settings
from tests.shown.running import command

MORE_THAN_ANYONE_HAS_GB = 10**9


def test_room_is_only_wanted_for_what_is_not_made_yet(tmp_path: Path) -> None:
    asked = [room("disk", tmp_path, MORE_THAN_ANYONE_HAS_GB, made) for made in (True, False)]
    assert [found.verdict for found in asked] == [OK, FAILURE]
    assert str(tmp_path) in asked[1].detail and "make room" in asked[1].fix


def test_the_disk_of_what_is_built_may_be_another(tmp_path: Path) -> None:
    (one,) = disks(tmp_path, tmp_path / "build", 1, True, False)
    assert one.what == "disk" and str(tmp_path) in one.detail
    checkout, build = disks(tmp_path, Path("/dev/shm"), 1, True, False)
    assert (checkout.what, build.what) == ("disk", "build's disk") and "/dev/shm" in build.detail


def test_a_checkout_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root is refused nothing else
    (tmp_path / ".venv").mkdir()
    checkout, environment, _ = disks(tmp_path, tmp_path / "build", 1, True, False)
    assert checkout.verdict == FAILURE and f"{tmp_path} cannot be written to" in checkout.detail
    assert environment.verdict == WARNING and ".venv cannot be written to" in environment.detail


@pytest.mark.parametrize(("name", "given"), [("birds", {}), ("resnet50", {"FROM": "birds.onnx"})])
def test_a_network_of_ones_own_needs_no_weights(
    name: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = command("doctor")
    monkeypatch.setattr(doctor, "why_unavailable", lambda: "nobody answers")
    monkeypatch.setattr(pipelines, "main_name", lambda: name)
    found = doctor._weights(Settings.load(given, Path("none")))
    assert found.verdict == OK and "of its own" in found.detail
    monkeypatch.setattr(pipelines, "main_name", lambda: pipelines.DEFAULT)
    assert doctor._weights(Settings.load({}, Path("none"))).verdict == WARNING
