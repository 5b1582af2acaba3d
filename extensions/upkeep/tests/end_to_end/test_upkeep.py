"""After the first day: upgrades, backups, housekeeping."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bundle_serving.health import reason_not_to_trust
from tests.networks import draw_network
from tests.project import ROOT, Project, error_lines, picture

# The last bundle whose .env had MOST_P99.
EARLIER = "36fb1c2~1"
SECRET = {"PASSPHRASE": "correct horse"}


def refusal(project: Project, *words: str, **settings: str) -> str:
    done = project.make(*words, **settings)
    assert done.returncode and "Traceback" not in done.stderr, done.stderr
    (line,) = error_lines(done.stderr)
    return line


def state_of(project: Project) -> dict[str, bytes]:
    """All that an upgrade or a backup keeps."""
    folder = project.path / "build" / "versions"
    found = (path for path in (*folder.rglob("*"), project.path / ".env") if path.is_file())
    return {str(path.relative_to(project.path)): path.read_bytes() for path in found}


def damage(file: Path, to: Path) -> Path:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    to.write_bytes(content)
    return to


def test_upgrade_backup_restore_and_prune(tmp_path: Path, exported: Path) -> None:
    """Without a server."""
    project = Project.copy(tmp_path / "one", FLAVOUR="local")
    project.take(exported)
    versions, dotenv = project.path / "build" / "versions", project.path / ".env"
    (versions / "layout").unlink()
    dotenv.write_text("# mine\nMOST_P99=3\n")
    assert "MOST_P99 in .env; it is called MAX_P99_RATIO now; make upgrade" in refusal(
        project, "history"
    )
    output = project.made("upgrade")
    assert ".env: MOST_P99 is called MAX_P99_RATIO now" in output and "layout 0 becomes" in output
    assert dotenv.read_text() == "# mine\nMAX_P99_RATIO=3\n"
    assert (project.path / ".env.before").read_text() == "# mine\nMOST_P99=3\n"
    assert project.made("upgrade") == "- nothing to upgrade\n"

    file, before = tmp_path / "monday.tar", state_of(project)
    assert "saved and verified" in project.made("backup", f"TO={file}")
    shutil.copytree(versions / "1", versions / "2")
    shutil.copytree(versions / "1", versions / "3")
    (network,) = (versions / "1" / "models").glob("*/model.onnx")
    whole = network.rename(tmp_path / "whole")
    damage(whole, network)
    told = project.made("backup", f"TO={tmp_path / 'new' / 'tuesday.tar'}")
    assert f"there was no folder {tmp_path / 'new'}; it was made" in told
    assert "no longer what was published: version 1, version 2, version 3; " in told
    whole.replace(network)
    assert "make prune YES=1 frees" in project.made("prune", "KEEP_VERSIONS=1")
    assert (versions / "2").is_dir()
    project.made("prune", "KEEP_VERSIONS=1", "YES=1")
    assert sorted(path.name for path in versions.glob("[0-9]")) == ["1", "3"]  # live, newest
    assert "is damaged" in refusal(
        project, "restore", f"FROM={damage(file, tmp_path / 'damaged.tar')}"
    )
    assert "would replace what is here: versions" in refusal(project, "restore", f"FROM={file}")
    assert "restored" in project.made("restore", f"FROM={file}", "YES=1")
    assert state_of(project) == before

    (versions / "layout").write_text("99\n")
    assert "written by a newer bundle (layout 99" in refusal(project, "history")


@pytest.mark.rare
def test_a_network_of_ones_own_is_upgraded(tmp_path: Path) -> None:
    """From an earlier layout, while it serves."""
    noise = tmp_path / "noise.jpg"
    noise.write_bytes(picture())
    settings = {"FLAVOUR": "local", "ARCH": "", "WEIGHTS": ""}
    project = Project.copy(tmp_path / "one", **settings)
    try:
        project.made("up", FROM=str(draw_network(tmp_path / "birds.onnx")))
        answer = labels(project, noise)
        (project.path / "build" / "versions" / "layout").unlink()
        assert "layout 0 becomes" in project.made("upgrade")
        assert "nothing to upgrade" in project.made("upgrade")
        assert labels(project, noise) == answer
        assert reason_not_to_trust(f"http://{project.http}", "birds") is None
        assert "resnet50" not in project.made("status") + project.made("models")
    finally:
        project.end()


def labels(project: Project, picture: Path, model: str = "") -> Any:
    words = (f"IMG={picture}", "JSON=1", f"MODEL={model}")
    return json.loads(project.made("classify", *words))["labels"]


@pytest.mark.rare
def test_a_backup_serves_the_same_elsewhere(tmp_path: Path, exported: Path) -> None:
    """Its keys too, and by every pipeline that was live."""
    settings = {"FLAVOUR": "local", "CASCADE": "random"}
    first, second = (Project.copy(tmp_path / name, **settings) for name in ("one", "two"))
    first.take(exported)
    noise, file = tmp_path / "noise.jpg", tmp_path / "monday.tar"
    noise.write_bytes(picture())
    try:
        first.made("up")
        answer, key = labels(first, noise), first.admin_key
        cascade = labels(first, noise, "cascade")
        assert "with its keys" in first.made("backup", f"TO={file}", **SECRET)
    finally:
        first.made("clean")
    wrong = refusal(second, "restore", f"FROM={file}", PASSPHRASE="wrong horse")
    assert "cannot be decrypted" in wrong and not (second.path / "build" / "versions").exists()
    second.made("restore", f"FROM={file}", **SECRET)
    try:
        assert "export:" not in second.made("up")
        assert reason_not_to_trust(f"http://{second.http}", "cascade") is None
        assert labels(second, noise) == answer and second.admin_key == key
        assert labels(second, noise, "cascade") == cascade
        assert "version 1 is live" in second.made("history")
    finally:
        second.made("down")


@contextmanager
def earlier_bundle(path: Path) -> Iterator[Project]:
    """With an environment of its own, made of links to the files of this one."""
    tree = ["git", "-C", str(ROOT), "archive", EARLIER]
    archived = subprocess.run(tree, capture_output=True)
    if archived.returncode:
        pytest.skip("this checkout has no history")
    path.mkdir()
    subprocess.run(["tar", "x"], cwd=path, input=archived.stdout, check=True)
    subprocess.run(["cp", "-al", ROOT / ".venv", path / ".venv"], check=True)
    (ours,) = (path / ".venv").glob("lib/python*/site-packages/triton_bundle.pth")
    ours.unlink()
    ours.write_text(f"{path}/serving\n{path}/client\n")
    note_layers = (
        "import json; from scripts import bootstrap as b; b.STAMP.write_text(json.dumps("
        "{p.stem: b._digest(p.stem) for p in b.REQUIREMENTS.glob('*.txt')}))"
    )
    subprocess.run([sys.executable, "-c", note_layers], cwd=path, check=True)
    project = Project(path)
    project.settings |= {"FLAVOUR": "local", "WEIGHTS": "random", "SAMPLES": ""}
    project.settings |= {"CASCADE": "random"}
    try:
        yield project
    finally:
        project.end()


def pull(project: Project, path: Path) -> None:
    """This bundle's files in the place of its own."""
    for old in project.path.iterdir():
        if old.name not in ("build", ".venv", ".env"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    new = Project.bare(path).path
    shutil.copytree(new, project.path, dirs_exist_ok=True)


@pytest.mark.rare
def test_an_earlier_bundle_is_upgraded_while_it_serves(tmp_path: Path) -> None:
    noise = tmp_path / "noise.jpg"
    noise.write_bytes(picture())
    with earlier_bundle(tmp_path / "earlier") as project:
        (project.path / ".env").write_text("MOST_P99=20\n")
        project.made("up")
        key = (project.path / "build" / "run" / "admin.key").read_text()
        answer, history = labels(project, noise), project.made("history")
        labels(project, noise, "cascade")
        pull(project, tmp_path / "new")
        output = project.made("upgrade")
        assert reason_not_to_trust(f"http://{project.http}", "cascade") is None
        order = ["MOST_P99 is called", "version 1 does not fit any more (", "- up: "]
        assert sorted(order, key=output.index) == order, output
        assert labels(project, noise) == answer and project.admin_key + "\n" == key
        assert "nothing to upgrade" in project.made("upgrade")
        after = project.made("history")
        assert history.split()[:2] == after.split()[:2] and "version 2 is live" in after
        project.made("rollback", WATCH_SECONDS="1")
        for command in ("up", "upgrade"):  # which leave it so
            project.made(command)
            assert "version 1 is live" in project.made("history")
        assert labels(project, noise) == answer
        # What comes from a bundle that is newer still is left alone.
        (project.path / "build" / "versions" / "layout").write_text("99\n")
        assert "use that bundle" in refusal(project, "upgrade")
