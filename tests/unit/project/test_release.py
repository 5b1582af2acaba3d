"""The script of a release, and who calls it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from bundle_client import __version__
from tests.project import ROOT


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("OUT", str(tmp_path))
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_workflow_takes_every_step_once(script: ModuleType) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    lines = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    called = re.findall(r"\.ci/release\.py (.*)", "\n".join(lines))
    assert sorted(" ".join(called).split()) == sorted(script.STEPS)
    assert all(f"    {name} " in str(script.__doc__) for name in script.STEPS)


def test_the_notes_are_what_the_changes_say_of_the_version(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_notes()
    assert (tmp_path / "notes.md").read_text() in (ROOT / "CHANGELOG.md").read_text()
    monkeypatch.setattr(script, "find_version", lambda: "9.9.9")
    with pytest.raises(SystemExit, match=r"no part '## 9\.9\.9'"):
        script.write_notes()


def test_another_versions_tag_is_refused(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_REF_NAME", "v9.9.9")
    with pytest.raises(SystemExit, match=f"the tag v9.9.9 is not v{re.escape(__version__)}"):
        script.check_packages()


def test_what_is_missing_is_named(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGNING_KEY", raising=False)
    with pytest.raises(SystemExit, match="SIGNING_KEY is not set"):
        script.sign()
    with pytest.raises(SystemExit, match="no step wheel"):
        script.main(["wheel"])


def test_images_of_one_processor_are_not_joined_as_all(script: ModuleType, tmp_path: Path) -> None:
    names = [f"here/triton-bundle-{name}@sha256:12\n" for name in ("server", "layout")]
    (tmp_path / "images-x86_64.txt").write_text("".join(names))
    (tmp_path / "images-aarch64.txt").write_text(names[0])
    with pytest.raises(SystemExit, match="do not list the same images"):
        script.join_images()
    for file in tmp_path.glob("images-*.txt"):
        file.unlink()
    with pytest.raises(SystemExit, match="do not list the same images"):
        script.join_images()


def test_compose_names_the_version() -> None:
    named = re.findall(r":\+:(\d[\d.]+)\}", (ROOT / "compose.yaml").read_text())
    assert named == [__version__] * 3
