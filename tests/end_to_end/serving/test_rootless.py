"""A Docker engine that a user runs without root's rights."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.end_to_end.serving.test_several_users import User, checkout, folder, labels
from tests.plugin import require_docker
from tests.project import wait_until

__all__ = ["folder"]

pytestmark = pytest.mark.rare

NAME, UID = "rootless", 64_103
BASE = "debian:bookworm-slim"
NEEDED = ("rootlesskit", "slirp4netns", "newuidmap", "unshare", "nsenter")

# Where the user, and the numbers that it may give, are known to this engine and its commands alone.
APART = """
for name in passwd subuid subgid; do mount --bind "$0/$name" "/etc/$name"; done
mount --bind "$0/tun" /dev/net/tun
exec setpriv --reuid="$1" --regid="$1" --clear-groups -- "$2"
"""


@pytest.fixture
def rootless(folder: Path, exported: Path) -> Iterator[User]:
    require_docker()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    program = _find_program()
    if missing or program is None:
        pytest.skip(f"for a rootless engine, this machine lacks {missing or 'its program'}")
    user = checkout(folder / NAME, exported, UID, UID)
    shutil.rmtree(user.path / "build")  # all steps are to run here
    home, run = folder / NAME, folder / "run"
    run.mkdir(mode=0o700)
    os.chown(run, UID, UID)
    os.mknod(folder / "tun", stat.S_IFCHR | 0o666, Path("/dev/net/tun").stat().st_rdev)
    (folder / "tun").chmod(0o666)
    line = f"{NAME}:x:{UID}:{UID}::{home}:/bin/sh\n"
    (folder / "passwd").write_text(Path("/etc/passwd").read_text() + line)
    for name in ("subuid", "subgid"):
        (folder / name).write_text(f"{NAME}:700000:65536\n")
    asked = ["docker", "info", "--format", "{{range .ClientInfo.Plugins}}{{println .Path}}{{end}}"]
    plugins = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    (to := home / ".docker" / "cli-plugins").mkdir(parents=True)
    for plugin in plugins:
        shutil.copy(plugin, to)
    os.chown(to.parent, UID, UID)
    socket = f"unix://{run}/docker.sock"
    its = {"XDG_RUNTIME_DIR": str(run), "HOME": str(home), "DOCKER_HOST": socket}
    its |= {"DOCKERD_ROOTLESS_ROOTLESSKIT_NET": "slirp4netns"}
    with (folder / "engine.log").open("w") as log:
        words = ["unshare", "--mount", "sh", "-c", APART, str(folder), str(UID), str(program)]
        engine = subprocess.Popen(words, env=os.environ | its, stdout=log, stderr=log)
    try:
        wait_until(lambda: _ask(socket, "info").returncode == 0, "the engine to answer")
        with subprocess.Popen(["docker", "save", BASE], stdout=subprocess.PIPE) as saved:
            assert _ask(socket, "load", given=saved.stdout).returncode == 0
        settings = user.settings | its | {"FLAVOUR": "cpu"}
        inside = ["nsenter", f"--mount=/proc/{engine.pid}/ns/mnt", f"--wdns={user.path}"]
        yield User(user.path, settings, UID, UID, inside)
    finally:
        engine.terminate()
        engine.wait(60)


def _find_program() -> Path | None:
    engine = shutil.which("dockerd")
    usr = Path(engine).resolve().parents[1] if engine else Path("/usr")
    program = usr / "share" / "docker.io" / "contrib" / "dockerd-rootless.sh"
    return program if program.exists() else None


def _ask(
    socket: str, *words: str, given: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["docker", "--host", socket, *words], stdin=given, capture_output=True)


def owners(path: Path) -> set[int]:
    return {each.lstat().st_uid for each in (path, *path.rglob("*"))}


def test_it_serves_and_all_files_are_the_users(rootless: User) -> None:
    rootless.made("up")
    assert labels(rootless)
    rootless.made("publish", DECODE="full")
    rootless.made("rollout", "ANYWAY=1", WATCH_SECONDS="1", MAX_P99_RATIO="20")
    assert "version 2 is live" in rootless.made("history")
    assert owners(rootless.path) == {UID}
    header = rootless.made("keys", ADD="ann").splitlines()[-1]
    rootless.made("up", BIND="0.0.0.0")
    url = f"https://localhost:{rootless.settings['HTTP_PORT']}/v2"
    ask = ("curl", "--silent", "--cacert", "build/tls/cert.pem", "--write-out", "%{http_code}")
    assert rootless.run(*ask, url).stdout.endswith("401")
    assert rootless.run(*ask, "--header", header, url).stdout.endswith("200")
    assert "cpu server stopped" in rootless.made("down")

    rootless.settings["WEIGHTS"] = "random"
    alone = rootless.run("docker", "compose", "up", "--wait")
    assert alone.returncode == 0, alone.stderr
    assert labels(rootless)
    assert owners(rootless.path) == {UID}
    rootless.made("down")
