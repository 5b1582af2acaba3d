"""What a machine refuses: room, writing, open files; and a clock that is set. One line each,
nothing half-written, and all is well once the cause is gone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.project import ROOT, Project, error_lines, picture

RARE = pytest.mark.rare

NAMESPACE = ("unshare", "--mount", "--propagation", "private")

# Exported in a few seconds.
SMALL = {"ARCH": "drawn", "WEIGHTS": "random"}


class Machine(Project):
    """A project on disks of its own, which other processes do not see."""

    holder: subprocess.Popen[str]

    def inside(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--mount", "--target", str(self.holder.pid)]
        enter += ["env", "--chdir", str(self.path)]
        return subprocess.run(
            [*enter, *command],
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def make(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.inside("make", "--no-print-directory", *words, **settings)

    def sh(self, script: str) -> str:
        done = self.inside("sh", "-euc", script)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Machine]:
    """With 100 MB of disk for build/."""
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    made = Machine.copy(tmp_path_factory.mktemp("machine"), FLAVOUR="local")
    assert isinstance(made, Machine)
    (made.path / "build").mkdir()
    (made.path / "noise.jpg").write_bytes(picture())
    made.holder = subprocess.Popen(
        [*NAMESPACE, "sh", "-c", "echo; read line"], stdin=-1, stdout=-1, text=True
    )
    assert made.holder.stdout and made.holder.stdin
    try:
        made.holder.stdout.readline()
        made.sh("mount -t tmpfs -o size=100m none build; mkdir build/versions")
        made.sh(f"cp -a {exported}/versions/. build/versions")
        yield made
    finally:
        made.end()
        made.holder.communicate("\n")


@pytest.fixture(scope="module")
def serving(machine: Machine) -> Machine:
    machine.made("up")
    return machine


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode and "Traceback" not in done.stderr + done.stdout, done.stderr
    (line,) = error_lines(done.stderr)
    return line


@contextmanager
def full(machine: Machine) -> Iterator[None]:
    machine.sh("dd if=/dev/zero of=build/filler bs=1M 2>/dev/null || true")
    before = machine.sh("find build/versions | sort")
    try:
        yield
        assert machine.sh("find build/versions | sort") == before
    finally:
        machine.sh("rm build/filler")


@contextmanager
def read_only(machine: Machine) -> Iterator[None]:
    """Over the tree and its disk, which running programs keep open."""
    path = machine.path
    machine.sh(f"cd /; mount --rbind {path} {path}; mount -o remount,bind,ro {path}")
    machine.sh(f"cd /; mount -o remount,bind,ro {path}/build")
    try:
        yield
    finally:
        machine.sh(f"cd /; umount --lazy {path}")


def test_nothing_begins_on_a_full_disk(machine: Machine) -> None:
    with full(machine):
        for words in (["up"], ["keys", "ADD=ann"]):
            error = one_line(machine.make(*words, **SMALL))
            assert "no space left on device" in error and "make prune" in error
        for command in ("history", "prune", "down"):
            assert machine.make(command).returncode == 0, command
    machine.made("keys", "ADD=ann")


def test_nothing_is_written_to_a_read_only_tree(machine: Machine) -> None:
    with read_only(machine):
        machine.made("history")
        for command in ("up", "prune", "clean"):
            error = one_line(machine.make(command))
            assert "read-only file system" in error and "can be written to" in error


@pytest.mark.parametrize("files", [12, pytest.param(6, marks=RARE), pytest.param(24, marks=RARE)])
def test_no_files_can_be_opened(machine: Machine, files: int) -> None:
    limit = ("prlimit", f"--nofile={files}", str(ROOT / ".venv/bin/python"))
    for command in ("serve.up", "versions.history", "operate.prune"):
        done = machine.inside(*limit, "-m", "scripts.commands", command)
        if done.returncode:  # what opens few files works
            assert "ulimit" in one_line(done), command


@RARE
def test_a_clock_that_is_set_restarts_nothing(serving: Machine) -> None:
    """The kernel then tells another time of its boot; the server began at the same ticks after."""
    serving.sh(
        "awk '$1 == \"btime\" {$2 += 1} {print}' /proc/stat > build/stat"
        " && mount --bind build/stat /proc/stat"
    )
    try:
        assert "up already" in serving.made("up")
        assert serving.make("status").returncode == 0
    finally:
        serving.sh("umount /proc/stat; rm build/stat")


@RARE
def test_a_server_goes_on_where_nothing_can_be_written(serving: Machine) -> None:
    with full(serving):
        for command in ("status", "models"):
            assert serving.make(command).returncode == 0, command
        assert serving.make("classify", IMG="noise.jpg").returncode == 0
        assert "export needs 300 MB" in one_line(serving.make("publish", **SMALL))
        assert "no space left" in one_line(serving.make("publish", DECODE="full"))
    with read_only(serving):
        for command in ("status", "history", "models", "logs"):
            assert serving.make(command).returncode == 0, command
        assert serving.make("classify", IMG="noise.jpg").returncode == 0
        for command in ("up", "publish", "prune", "down"):
            assert "read-only file system" in one_line(serving.make(command))
    assert "up already" in serving.made("up")


@RARE
@pytest.mark.parametrize("size", ["200k", "2m"])
def test_a_disk_that_becomes_full_during_a_step(machine: Machine, size: str) -> None:
    machine.sh(f"mkdir -p build/small; mount -t tmpfs -o size={size} none build/small")
    try:
        step = ["-m", "scripts.steps.export", "--arch", "mobilenet_v2", "--weights", "random"]
        done = machine.inside(sys.executable, *step, "--out", "build/small/onnx")
        assert "no space left on device" in one_line(done)
        assert machine.sh("find build/small -type f") == ""
    finally:
        machine.sh("umount build/small; rmdir build/small")
