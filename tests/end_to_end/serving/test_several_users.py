"""Two users of one machine, each with a checkout; and one checkout that a group shares."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.project import ROOT, Project, error_lines, picture, wait_until

pytestmark = pytest.mark.rare

# Debian's: the environment of these tests may be one that only its owner can use.
PYTHON = "/usr/bin/python3"
GROUP = 64_100
UIDS = {"ann": 64_101, "bob": 64_102}


@dataclass
class User(Project):
    """A project in the hands of somebody who is not root."""

    uid: int = 0
    gid: int = 0

    # A command that its commands are run by, as root.
    by: Sequence[str] = ()

    def run(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        return subprocess.run(
            [*self.by, *drop, *command],
            cwd=self.path,
            env=self.environment(**settings) | {"HOME": str(self.path.parent)},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def make(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.run("make", "--no-print-directory", *words, **settings)


@pytest.fixture
def folder(exported: Path) -> Iterator[Path]:
    """Where others may go, unlike the tests' usual one."""
    if os.geteuid() or not Path(PYTHON).exists():
        pytest.skip("needs root, to be two other users, and Debian's Python")
    if not all(path.stat().st_mode & 0o005 == 0o005 for path in (ROOT, *ROOT.parents)):
        pytest.skip(f"other users cannot read {ROOT}")
    path = Path(tempfile.mkdtemp(prefix="users-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def checkout(path: Path, exported: Path, uid: int, gid: int) -> User:
    bare = Project.bare(path)
    made = User(bare.path, bare.settings | {"FLAVOUR": "local"}, uid, gid)
    venv = made.path / ".venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (ours,) = (ROOT / ".venv").glob("lib/python*/site-packages")
    (packages / "triton_bundle.pth").write_text(f"{made.path}/serving\n{made.path}/client\n")
    for installed in ours.iterdir():
        if not (packages / installed.name).exists():
            (packages / installed.name).symlink_to(installed)
    shutil.copytree(ROOT / ".venv" / "layers", venv / "layers", copy_function=shutil.copy)
    shutil.copytree(exported / "versions", made.path / "build" / "versions")
    (made.path / "noise.jpg").write_bytes(picture())
    subprocess.run(["chown", "-R", f"{uid}:{gid}", made.path.parent], check=True)
    return made


def regions(project: Project) -> list[str]:
    return [str(region) for region in project.shared_memory()]


def labels(user: User) -> object:
    return json.loads(user.made("classify", "IMG=noise.jpg", "JSON=1"))["labels"]


def cannot_read(user: User, *paths: str | Path) -> None:
    for path in paths:
        assert Path(path).exists()
        refused = user.run("sh", "-c", f"ls {path}/. || cat {path}")
        assert refused.returncode and not refused.stdout, path


def test_two_users_do_not_meet(folder: Path, exported: Path) -> None:
    ann, bob = (checkout(folder / name, exported, uid, uid) for name, uid in UIDS.items())
    try:
        ann.made("up")
        bob.made("up")
        assert labels(ann) and labels(bob)
        build = ann.path / "build"
        cannot_read(bob, build / "key" / "admin.key", build / "run" / "envoy.yaml")
        cannot_read(bob, build / "run" / "sockets", *regions(ann))
        bob.made("down")
        assert ann.readiness() == 200 and labels(ann)
        ann.made("status")
    finally:
        ann.end()
        bob.end()


def test_a_group_shares_a_checkout(folder: Path, exported: Path) -> None:
    """Only the one who started the server can stop it; all else, each of them can do."""
    ann = checkout(folder / "team", exported, UIDS["ann"], GROUP)
    subprocess.run(["chmod", "-R", "g+w", ann.path], check=True)
    subprocess.run(["find", ann.path, "-type", "d", "-exec", "chmod", "g+s", "{}", "+"], check=True)
    bob = User(ann.path, ann.settings, UIDS["bob"], GROUP)
    carl = User(ann.path, ann.settings, UIDS["bob"], UIDS["bob"])  # of another group
    try:
        ann.made("up")
        for command in ("status", "history", "models", "logs"):
            assert bob.make(command).returncode == 0, bob.make(command)
        assert labels(bob) == labels(ann)
        cannot_read(bob, *regions(ann))
        cannot_read(carl, ann.path / "build" / "key" / "admin.key", *regions(ann))
        assert "up already" in bob.made("up")
        bob.made("publish", DECODE="full")
        bob.made("rollout", "ANYWAY=1", WATCH_SECONDS="1", MAX_P99_RATIO="20")
        assert "version 2 is live" in ann.made("history")
        ann.made("rollback", WATCH_SECONDS="1", MAX_P99_RATIO="20")
        refused = bob.make("down")
        (line,) = error_lines(refused.stderr)
        assert "the server belongs to another user; run it as that user" in line
        wait_until(lambda: ann.make("status").returncode == 0, "the server to be as before")
        for command in ("status", "logs", "keys"):
            carls = carl.make(command)
            (line,) = error_lines(carls.stderr)
            assert "another user" in line or "permission denied" in line
    finally:
        ann.end()
