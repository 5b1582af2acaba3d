"""What an upgrade finds that nobody made there."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from extensions.upkeep import upgrade
from scripts.artefacts.gpus import Gpu
from scripts.artefacts.manifest import Manifest, lines_of
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import folders, schema
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU, GPU
from scripts.repository import archive, custom, evaluations, layout_number
from scripts.server import served
from scripts.settings import dotenv_file
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import plan


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "versions"
    made.mkdir()
    monkeypatch.setattr(archive, "HERE", made)
    monkeypatch.setattr(layout_number, "PATH", made / "layout")
    return made


def test_files_folders_and_links_to_them_are_read(versions: Path) -> None:
    (versions / "1").mkdir()
    (versions / "layout").symlink_to("1/elsewhere")
    (versions / "2").symlink_to("1")
    upgrade.require_plain()


@pytest.mark.parametrize("linked", [False, True])
def test_nobody_waits_for_a_pipe(versions: Path, linked: bool) -> None:
    pipe = versions.parent / "pipe" if linked else versions / "1" / "version.json"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    if linked:
        (versions / "layout").symlink_to(pipe)
    with pytest.raises(UserError, match="is neither a file nor a folder"):
        upgrade.require_plain()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_the_layouts_number_is_a_files(versions: Path, make: Callable[[Path], None]) -> None:
    """Which every command reads."""
    make(versions / "layout")
    with pytest.raises(UserError, match="is no file"):
        layout_number.here()


@pytest.mark.parametrize("name", [".env", ".env.before"])
def test_settings_are_a_file(versions: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "DOTENV", versions.parent / ".env")
    (versions.parent / name).mkdir()
    with pytest.raises(UserError, match="is a folder"):
        upgrade.require_plain()


def test_labels_that_checks_write_over_are_copied(
    versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5.0 took LABELS=build/eval/birds.txt as it lay."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr(evaluations, "ORDERED", tmp_path / "build" / "eval")
    monkeypatch.setattr(upgrade, "_key_is_elsewhere", lambda: False)
    monkeypatch.setattr(dotenv_file, "DOTENV", tmp_path / ".env")
    made = custom.recipe("birds", {"ARCH": "resnet18", "WEIGHTS": "random"})
    labels = tmp_path / "build" / "eval" / "birds.txt"
    files.write(labels, "robin\nwren\n")
    own = made.model_copy(update={"labels": custom.beside_recipes(labels), "classes": 2})
    recipe = folders.own().recipes / "birds.yaml"
    text = yaml.safe_dump(own.model_dump(mode="json", exclude_none=True))
    files.write(recipe, f"# Mine.\n{text}")
    assert [change for change in upgrade.rewrite_files() if str(labels) in change]
    labels.rename(labels.with_name("gone"))  # and nothing is served: nobody has them
    assert not [change for change in upgrade.rewrite_files() if "labels" in change]
    labels.with_name("gone").rename(labels)
    upgrade.write()
    assert not [change for change in upgrade.rewrite_files() if "labels" in change]
    labels.unlink()
    changed = schema.load(recipe)
    assert isinstance(changed, Image) and changed.labels_file
    assert changed.labels_file.name == labels.name
    assert lines_of(changed.labels_file) == ["robin", "wren"]
    assert changed == own.model_copy(update={"labels": changed.labels})
    assert recipe.read_text().startswith("# Mine.\n")
    files.write(recipe, yaml.safe_dump(json.loads(own.model_dump_json()), default_flow_style=True))
    before = recipe.read_text()
    files.write(labels, "wren\nrobin\n")
    with pytest.raises(UserError, match="labels that checks write over"):
        upgrade.write()
    assert recipe.read_text() == before


def test_labels_that_a_check_has_written_over_are_copied_as_they_are_served(
    versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr(evaluations, "ORDERED", tmp_path / "build" / "eval")
    monkeypatch.setattr(upgrade, "_key_is_elsewhere", lambda: False)
    monkeypatch.setattr(dotenv_file, "DOTENV", tmp_path / ".env")
    made = Workspace(tmp_path / "made")
    monkeypatch.setattr(served, "serving", lambda _: Mock(workspace=made))
    files.write(made.onnx / "labels.txt", "robin\nwren\n")
    labels, recipe = tmp_path / "build" / "eval" / "birds.txt", tmp_path / "own/recipes/birds.yaml"
    own = custom.recipe("birds", {"ARCH": "resnet18", "WEIGHTS": "random"})
    text = yaml.safe_dump(own.model_dump(mode="json", exclude_none=True) | {"classes": 2})
    for now in (None, "wren\nrobin\n"):
        if now:
            files.write(labels, now)
        files.write(recipe, re.sub("(?m)^labels:.*", f"labels: {labels}", text))
        upgrade.write()
        kept = tmp_path / "own" / "networks" / "birds" / "labels" / "birds.txt"
        assert kept.read_text() == "robin\nwren\n"


def test_a_plan_of_an_earlier_tensorrt_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while a server runs: before, NVIDIA's image of this release may not be here."""
    monkeypatch.setattr(upgrade, "why_export", lambda *_: "")
    known = Mock(onnx={"sha256": "0"})
    monkeypatch.setattr(Manifest, "of_export", lambda _: known)
    gpu = Gpu("0", "NVIDIA L4", "8.9", "610.43", "24576 MiB")
    identity = plan.identity(tmp_path, gpu, "11.1.0", {})
    made = Workspace(tmp_path)
    files.write(made.plan / GPU.file, "")
    content = {"identity": identity, "plan": {"sha256": files.sha256(made.plan / GPU.file)}}
    files.write(made.plan / "manifest.json", json.dumps(content))
    recipe = Mock(programs=lambda _: [], shapes=lambda *_: {})
    version: Any = Mock(pipeline=Mock(recipe=recipe), engine=GPU, workspace=made)
    monkeypatch.setattr(upgrade, "settings_of", lambda *_: Settings(DEFAULTS))
    for tensorrt, runs, told in (
        ("11.1.0", True, ""),
        ("11.2.0", True, "plan: TensorRT: 11.1.0 -> 11.2.0"),
        ("11.2.0", False, ""),
    ):
        stack = Mock(engine=GPU, gpu=gpu, tensorrt=tensorrt, alive=Mock(return_value=runs))
        assert upgrade._explain_rebuild(stack, version) == told
    monkeypatch.setattr(upgrade, "Check", Mock(return_value=Mock(fits=lambda _: True)))
    version.engine, version.workspace = CPU, Mock(plan=made.plan, forest=None)  # never served there
    assert upgrade._explain_rebuild(stack, version) == ""
