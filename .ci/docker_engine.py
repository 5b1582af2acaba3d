"""Make a working Docker engine available on a Debian 12 machine that runs no systemd.

Usage (as root):  python3 .ci/docker_engine.py [--newest] [--arm64]

Installs what is missing (the engine, the Compose and buildx plugins of the calling user), starts
dockerd when it does not answer, and makes sure of the base image `debian:bookworm-slim`. What is
there already is left alone, so calling it again costs next to nothing. The engine keeps running
afterwards. With --newest, the engine, its client and the plugins are those of the next Debian, from
/opt/docker-newest, and images are kept in containerd, as Docker 29 does; no other engine may run
then. With --arm64, also makes the base image for ARM64; qemu-user-static must be there to run
its programs. Exit status: 0 when all of it is in place, 1 with the reason on standard error.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

SUITE = "bookworm"
BASE_IMAGE = "debian:bookworm-slim"
# Docker Hub's own name for the image of this architecture.
ARM64_IMAGE = "arm64v8/debian:bookworm-slim"
SYSTEM_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = {
    "docker.io": Path("/usr/sbin/dockerd"),
    "iptables": Path("/usr/sbin/iptables"),
    "debootstrap": Path("/usr/sbin/debootstrap"),
}

# Debian 12 has neither plugin; Debian 13's need nothing but a libc6 that Debian 12's satisfies.
PLUGIN_SUITE = "trixie"
PLUGINS = {"docker-compose": "compose", "docker-buildx": "buildx"}

# What is newest in Debian. It needs no newer libc6 either, except for its runc: Debian 12's does.
NEWEST_SUITE = "forky"
NEWEST_PACKAGES = ("docker.io", "docker-cli", "containerd", *PLUGINS)
NEWEST = Path("/opt/docker-newest")
NEWEST_IMAGES = Path("/var/lib/docker-newest")

ENGINE_LOG = Path("/var/log/dockerd-ci.log")
LOCK = Path("/run/lock/docker-engine-ci.lock")
COMMAND_LIMIT_S = 900
ANSWER_LIMIT_S = 10
START_LIMIT_S = 60
MUTE_LIMIT_S = 30
KILL_LIMIT_S = 10

# What makes apt and dpkg behave inside containers as they do in the image this one stands in for.
IMAGE_FILES = {
    "usr/sbin/policy-rc.d": "#!/bin/sh\n# Installing packages starts no services.\nexit 101\n",
    "etc/apt/apt.conf.d/docker-clean": (
        'APT::Keep-Downloaded-Packages "false";\n'
        'Binary::apt::APT::Keep-Downloaded-Packages "false";\n'
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin"; };\n'
        'Dir::Cache::pkgcache "";\n'
        'Dir::Cache::srcpkgcache "";\n'
        'Acquire::Languages "none";\n'
        'Acquire::GzipIndexes "true";\n'
    ),
    "etc/dpkg/dpkg.cfg.d/docker-slim": (
        "force-unsafe-io\n"
        "path-exclude /usr/share/doc/*\n"
        "path-include /usr/share/doc/*/copyright\n"
        "path-exclude /usr/share/info/*\n"
        "path-exclude /usr/share/lintian/*\n"
        "path-exclude /usr/share/locale/*\n"
        "path-include /usr/share/locale/locale.alias\n"
        "path-exclude /usr/share/man/*\n"
    ),
    "etc/resolv.conf": "",
    "etc/machine-id": "",
}
# Removed from the image: files that match the first and whose name is not the second.
IMAGE_CLUTTER = [
    ("usr/share/doc/**/*", "copyright"),
    ("usr/share/info/**/*", ""),
    ("usr/share/lintian/**/*", ""),
    ("usr/share/locale/**/*", "locale.alias"),
    ("usr/share/man/**/*", ""),
    ("var/cache/apt/**/*", ""),
    ("var/cache/debconf/*-old", ""),
    ("var/lib/apt/lists/**/*", ""),
    ("var/lib/dpkg/*-old", ""),
    ("var/log/**/*", ""),
    ("etc/apt/sources.list", ""),
    ("etc/hostname", ""),
]


class EngineError(Exception):
    """A step failed; the message says which and why."""


def say(text: str) -> None:
    print(f"docker_engine: {text}", flush=True)


def step(name: str, action: Callable[[], str]) -> None:
    """Run ACTION, telling now and then that it still runs, and at its end what it did."""
    started = time.monotonic()
    done = threading.Event()

    def tell() -> None:
        pause = 2
        while not done.wait(pause):
            say(f"{name}: {time.monotonic() - started:.0f} s so far")
            pause *= 2

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        outcome = action()
    finally:
        done.set()
        teller.join()
    say(f"{name}: {outcome} ({time.monotonic() - started:.1f} s)")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """COMMAND's standard output; an EngineError with its last lines when it fails."""
    words = [str(word) for word in command]
    try:
        result = subprocess.run(
            words,
            cwd=cwd,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{words[0]}: {error}") from error
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        raise EngineError(f"{tail}\n{' '.join(words)}: exit status {result.returncode}")
    return result.stdout


def answer(*command: str) -> str | None:
    """What COMMAND prints, or None when it fails or takes too long."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=ANSWER_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def wait_until(condition: Callable[[], object], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def mirror() -> str:
    """The Debian mirror that this machine's own apt takes its packages from."""
    if not SYSTEM_SOURCES.exists():
        raise EngineError(f"{SYSTEM_SOURCES} is not there, so the Debian mirror is not known")
    for entry in re.split(r"\n\s*\n", SYSTEM_SOURCES.read_text()):
        suites = re.search(r"^Suites:(.*)$", entry, re.MULTILINE)
        uri = re.search(r"^URIs:\s*(\S+)", entry, re.MULTILINE)
        if suites and uri and SUITE in suites[1].split():
            return uri[1]
    raise EngineError(f"{SYSTEM_SOURCES} names no mirror for {SUITE}")


def ensure_packages() -> str:
    missing = [name for name, file in PACKAGES.items() if not file.exists()]
    if not missing:
        return "all there"
    apt = ("apt-get", "-o", "DPkg::Lock::Timeout=120")
    install = (*apt, "install", "--yes", "--no-install-recommends", *missing)
    try:
        run(*install)
    except EngineError:
        # No package lists yet, or older ones than the mirror's packages.
        run(*apt, "update")
        run(*install)
    return f"installed {' '.join(missing)}"


def download_packages(names: Iterable[str], suite: str, folder: Path) -> None:
    """Download NAMES' .deb files of SUITE, out of sight of the system's own apt."""
    sources = folder / "suite.sources"
    sources.write_text(
        f"Types: deb\nURIs: {mirror()}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        # The unprivileged download user cannot enter a private temporary folder.
        "APT::Sandbox::User": "root",
    }
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    run("apt-get", *options, "update")
    run("apt-get", *options, "download", *names, cwd=folder)


def unpack(names: Iterable[str], suite: str, scratch: Path) -> None:
    """Into SCRATCH/root."""
    download_packages(names, suite, scratch)
    for package in scratch.glob("*.deb"):
        run("dpkg-deb", "-x", package, scratch / "root")


def install_plugin(name: str, root: Path) -> None:
    folder = Path.home() / ".docker" / "cli-plugins"
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    shutil.copyfile(root / "usr/libexec/docker/cli-plugins" / name, part)
    part.chmod(0o755)
    part.replace(folder / name)


def plugin_version(name: str) -> str | None:
    return answer("docker", PLUGINS[name], "version")


def ensure_plugins() -> str:
    missing = [name for name in PLUGINS if plugin_version(name) is None]
    if not missing:
        return "all there"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        unpack(missing, PLUGIN_SUITE, scratch)
        for name in missing:
            install_plugin(name, scratch / "root")
    for name in missing:
        if plugin_version(name) is None:
            raise EngineError(f"docker {PLUGINS[name]} does not work although it is installed")
    return f"installed {' '.join(missing)}"


def ensure_newest() -> str:
    """All of its plugins too: they are what builds images and reads Compose files."""
    fetched = not (NEWEST / "usr/sbin/dockerd").exists()
    if fetched:
        with tempfile.TemporaryDirectory(dir=NEWEST.parent) as folder:
            unpack(NEWEST_PACKAGES, NEWEST_SUITE, Path(folder))
            shutil.move(Path(folder) / "root", NEWEST)
    for name in PLUGINS:
        install_plugin(name, NEWEST)
    return f"{'unpacked' if fetched else 'there'}; its programs are in {NEWEST}/usr/bin and sbin"


def engine_works() -> bool:
    # Without its containerd dockerd still answers, but runs nothing.
    parts = "{{range .Server.Components}}{{.Name}} {{end}}"
    return "containerd" in (answer("docker", "version", "--format", parts) or "").split()


def processes(wanted: Callable[[Path], bool]) -> Iterator[int]:
    """The live processes whose folder under /proc is WANTED."""
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes() and wanted(folder):
                yield int(folder.name)


def is_engine(process: Path) -> bool:
    return (process / "comm").read_text().strip() == "dockerd"


def is_newest(process: Path) -> bool:
    return (process / "exe").resolve() == NEWEST / "usr/sbin/dockerd"


def is_engine_child(process: Path) -> bool:
    """Whether it is a containerd of dockerd's or one of its shims, not some other containerd."""
    return (process / "comm").read_text().startswith("containerd") and (
        b"/docker/containerd/" in (process / "cmdline").read_bytes()
    )


def is_contained(process: Path) -> bool:
    """Whether it runs in a container or build of this machine's engine."""
    return ":/docker/" in (process / "cgroup").read_text()


def kill_all(wanted: Callable[[Path], bool]) -> None:
    def none_left() -> bool:
        left = list(processes(wanted))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if not wait_until(none_left, KILL_LIMIT_S):
        raise EngineError(f"leftover processes outlive kill -9: {list(processes(wanted))}")


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def clear_leftovers() -> None:
    """Remove what an engine that was killed leaves behind and a new one would stumble over."""
    kill_all(is_engine_child)
    # Builds have no shim, and containers outlive theirs. Where this machine is itself a container
    # its own processes look like those: spare them.
    if not is_contained(Path("/proc/self")):
        kill_all(is_contained)
    # By now no process can own these. A pid file is dangerous, not just untidy: its number may
    # belong to another process by now, and dockerd takes any live one for its own.
    children = Path("/run/docker/containerd").glob("containerd.*")
    for stale in [Path("/run/docker.pid"), Path("/run/docker.sock"), *children]:
        stale.unlink(missing_ok=True)
    # dockerd prefers a system-wide containerd wherever there is such a socket, even a dead one.
    shared = Path("/run/containerd/containerd.sock")
    if not accepts(shared):
        shared.unlink(missing_ok=True)


def start_engine(newest: bool) -> None:
    command, environment = ["/usr/sbin/dockerd"], {**os.environ}
    if newest:
        command = [str(NEWEST / "usr/sbin/dockerd"), "--data-root", str(NEWEST_IMAGES)]
        command += ["--feature", "containerd-snapshotter=true"]
        environment["PATH"] = f"{NEWEST}/usr/bin:{NEWEST}/usr/sbin:{environment['PATH']}"
    with ENGINE_LOG.open("wb") as log:
        engine = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    wait_until(lambda: engine_works() or engine.poll() is not None, START_LIMIT_S)
    if not engine_works():
        gone = engine.poll() is not None
        engine.kill()
        tail = "\n".join(ENGINE_LOG.read_text(errors="replace").splitlines()[-30:])
        reason = "has ended" if gone else f"does not answer after {START_LIMIT_S} s"
        raise EngineError(f"{tail}\ndockerd {reason}; the whole log is {ENGINE_LOG}")


def ensure_engine(newest: bool) -> str:
    if engine_works():
        if newest != any(processes(is_newest)):
            raise EngineError("another engine answers here already: stop it (pkill dockerd)")
        return "answers already"
    # One that runs may be starting, ending or restarting its containerd: it gets some time.
    wait_until(lambda: engine_works() or not any(processes(is_engine)), MUTE_LIMIT_S)
    if engine_works():
        return "answers now"
    kill_all(is_engine)
    clear_leftovers()
    start_engine(newest)
    return f"started, log in {ENGINE_LOG}"


def slim(root: Path) -> None:
    for pattern, spared in IMAGE_CLUTTER:
        for path in root.glob(pattern):
            if path.name != spared and (path.is_symlink() or not path.is_dir()):
                path.unlink()
    for name, text in IMAGE_FILES.items():
        (root / name).write_text(text)
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copyfile(SYSTEM_SOURCES, root / "etc/apt/sources.list.d/debian.sources")


def ensure_base_image(name: str, architecture: str) -> str:
    if answer("docker", "image", "inspect", name):
        return "there"
    # No pull is tried: the machines this is for reach Debian's mirror but no image registry.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        # In a mount namespace of its own nothing stays mounted below ROOT, however it ends.
        debootstrap = ("unshare", "--mount", "debootstrap", f"--arch={architecture}")
        run(*debootstrap, "--variant=minbase", f"--keyring={KEYRING}", SUITE, root, mirror())
        slim(root)
        context = Path(folder) / "context"
        context.mkdir()
        run("tar", "--numeric-owner", "-C", root, "-cf", context / "root.tar", ".")
        # Unlike `docker import`, a build notes the architecture.
        (context / "Dockerfile").write_text('FROM scratch\nADD root.tar /\nCMD ["bash"]\n')
        run("docker", "build", "--platform", f"linux/{architecture}", "--tag", name, context)
    return "made with debootstrap"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep two of these from installing and starting the same things at once."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waits for another run of it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm64", action="store_true", help="the base image for ARM64 too")
    parser.add_argument("--newest", action="store_true", help="the next Debian's engine")
    asked = parser.parse_args(argv)
    try:
        if os.geteuid() != 0:
            raise EngineError("needs to run as root")
        with alone():
            step("packages", ensure_packages)
            if asked.newest:
                step("newest engine", ensure_newest)
            step("plugins", ensure_plugins)
            step("engine", lambda: ensure_engine(asked.newest))
            own = run("dpkg", "--print-architecture").strip()
            step(f"image {BASE_IMAGE}", lambda: ensure_base_image(BASE_IMAGE, own))
            if asked.arm64:
                step(f"image {ARM64_IMAGE}", lambda: ensure_base_image(ARM64_IMAGE, "arm64"))
    except EngineError as error:
        print(f"docker_engine: {error}", file=sys.stderr)
        return 1
    say(
        f"engine {answer('docker', 'version', '--format', '{{.Server.Version}}')}, "
        f"storage {answer('docker', 'info', '--format', '{{.Driver}}')}, "
        f"compose {answer('docker', 'compose', 'version', '--short')}, "
        f"buildx {(answer('docker', 'buildx', 'version') or '?').split()[-1]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
