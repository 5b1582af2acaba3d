"""A copy of the project in a folder of its own, driven as a user drives it: by make."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
from dotenv import dotenv_values
from PIL import Image

from scripts.base import files

ROOT = Path(__file__).resolve().parents[1]

# The kind of pipeline that docs/own_kind.md shows, by its files' paths in the checkout.
OWN_KIND = dict(
    re.findall(r"```\w+ (\S+)\n(.*?)```", (ROOT / "docs" / "own_kind.md").read_text(), re.DOTALL)
)

# A folder with weights/mobilenet_v2_imagenet.safetensors and images/{mug,car}.jpg, vulture.jpeg.
ASSETS = Path(os.environ["TEST_ASSETS"]).resolve() if os.environ.get("TEST_ASSETS") else None

# Of an idle machine's time, that a command may go on without a word.
LONGEST_S = 600

# Below those that the kernel gives to outgoing connections.
PORTS = range(15_000, 32_000)
_reserved: list[IO[str]] = []


def free_ports(count: int) -> list[int]:
    """Nobody else's, in any run of these tests on this machine, until this process ends: a port may
    be asked for long before it is opened."""
    folder = Path(tempfile.gettempdir()) / f"triton-bundle-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    begin = os.getpid() * 37 % len(PORTS)
    ports: list[int] = []
    for port in (*PORTS[begin:], *PORTS[:begin]):
        if len(ports) == count:
            break
        file = (folder / str(port)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                ports.append(port)
                _reserved.append(file)
    return ports


def find_brought(pattern: str) -> list[Path]:
    """What kinds of pipelines and extensions bring."""
    homes = ROOT / "kinds", ROOT / "extensions"
    return [path for home in homes for path in sorted(home.glob(pattern))]


def makefiles() -> list[Path]:
    return [ROOT / "Makefile", *find_brought("*/commands.mk")]


class Patience:
    """A deadline that counts what the machine gives, not what a clock shows: where programs wait
    for a processor, a second is as much as one of them gets of it."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        share = min(1, (os.cpu_count() or 1) / max(os.getloadavg()[0], 1))
        self._left -= (now - self._seen) * share
        self._seen = now
        return self._left <= 0


def wait_until(true: Callable[[], Any], what: str, seconds: float = 300) -> Any:
    """The one way that tests wait: with a deadline that ends a hang, and a word on what did not
    come. A busy machine makes them slow, not red."""
    patience = Patience(seconds)
    while not patience.is_over():
        if result := true():
            return result
        time.sleep(0.1)  # between two looks
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def finish(process: subprocess.Popen[bytes], *outputs: IO[str]) -> None:
    """Waits for its end; what it writes is progress, with which the patience begins anew."""
    patience, written = Patience(LONGEST_S), 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return
        size = sum(os.fstat(output.fileno()).st_size for output in outputs)
        if size != written:
            patience, written = Patience(LONGEST_S), size
        elif patience.is_over():
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.kill()
            raise AssertionError(f"{process.args!r} wrote nothing more, and did not end")


def default_settings() -> dict[str, str]:
    """A small network; with real weights where there are some. Three steps, so that each can be
    asked, harmed and replaced by itself; test_one_step.py has one."""
    http, grpc, metrics = free_ports(3)
    weights = ASSETS / "weights" / "mobilenet_v2_imagenet.safetensors" if ASSETS else "random"
    return {
        "ARCH": "mobilenet_v2",
        "WEIGHTS": str(weights),
        "SAMPLES": str(ASSETS / "images") if ASSETS else "",
        "HTTP_PORT": str(http),
        "GRPC_PORT": str(grpc),
        "METRICS_PORT": str(metrics),
        "STEPS": "3",
        "CA_BUNDLE": os.environ.get("CA_BUNDLE", ""),
    }


def picture(size: tuple[int, int] = (300, 200), kind: str = "JPEG") -> bytes:
    """An image file of noise."""
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, kind)
    return file.getvalue()


@dataclass
class Project:
    path: Path
    settings: dict[str, str] = field(default_factory=default_settings)

    @classmethod
    def copy(cls, path: Path, **settings: str) -> Project:
        """With this checkout's .venv."""
        made = cls.bare(path, **settings)
        (made.path / ".venv").symlink_to(ROOT / ".venv")
        return made

    @classmethod
    def bare(cls, path: Path, **settings: str) -> Project:
        """The files that git knows or would take.

        The folder's name is another one for each run of these tests, so that what is
        left of one can be told apart.
        """
        path = path / f"{path.name}-{os.getpid()}"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, path / name)
        for wheel in (ROOT / "docker" / "export" / "wheels").glob("*.whl"):
            with suppress(OSError):  # on another file system, who builds an image fetches them
                os.link(wheel, path / "docker" / "export" / "wheels" / wheel.name)
        return cls(path, default_settings() | settings)

    def add_own_kind(self) -> None:
        for name, text in OWN_KIND.items():
            files.write(self.path / name, text)
        (self.path / "own" / "kinds" / "sum" / "model_repository" / "sums" / "1").mkdir()

    def take(self, exported: Path) -> None:
        """What was exported for all, in the place of an export of its own."""
        for name in ("versions", "cache"):
            files.link_tree(exported / name, self.path / "build" / name)

    def environment(self, **settings: str) -> dict[str, str]:
        return os.environ | self.settings | settings

    def make(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.run_command("make", "--no-print-directory", *words, **settings)

    def serve_from_s3(self, host: str) -> None:
        """From now on, from an S3 server on this machine, which others reach by that address."""
        port, override = self.settings["S3_PORT"], self.path / "s3.yaml"
        ports = [f"{host}:{port}:{port}"]
        override.write_text(json.dumps({"services": {"s3": {"ports": ports}}}))
        self.made("s3-up", COMPOSE_OVERRIDE=str(override))
        keys = self.path / "build" / "run" / "s3"
        self.settings |= {
            "REPOSITORY": f"s3://http://{host}:{port}/models/live",
            "S3_SERVER_CREDENTIALS": str(keys / "server.credentials"),
            "AWS_SHARED_CREDENTIALS_FILE": str(keys / "operator.credentials"),
        }

    def run_command(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command,
                cwd=self.path,
                env=self.environment(**settings),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )
            try:
                finish(process, out, err)
            except BaseException:
                process.kill()
                raise
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(
                [*command], process.returncode, out.read(), err.read()
            )

    def made(self, *words: str, **settings: str) -> str:
        """The output of a make that must succeed."""
        done = self.make(*words, **settings)
        assert done.returncode == 0, f"make {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start_make(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        """In a process group of its own, as a terminal gives it one."""
        return subprocess.Popen(
            ["make", "--no-print-directory", *words],
            cwd=self.path,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.settings['HTTP_PORT']}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.settings['GRPC_PORT']}"

    @property
    def compose_project(self) -> str:
        """Its name, as the project tells it to Compose."""
        return str(dotenv_values(self.path / ".env")["COMPOSE_PROJECT_NAME"])

    @property
    def network(self) -> str:
        """The model that the main pipeline's network is."""
        return f"resnet50_{'trt' if self.settings['FLAVOUR'] == 'gpu' else 'onnx'}"

    def list_reported(self, steps: list[str]) -> list[str]:
        """Of the steps that the page shows. A plan reports nothing: its time is in none of them."""
        is_plan = self.network == "resnet50_trt"
        return [step for step in steps if not (is_plan and step == "Neural network")]

    @property
    def admin_key(self) -> str:
        return (self.path / "build" / "key" / "admin.key").read_text().strip()

    @property
    def served_version(self) -> Path:
        """The folder of the version that serves."""
        versions = self.path / "build" / "versions"
        events = map(json.loads, (versions / "history.jsonl").read_text().splitlines())
        *_, last = (event["version"] for event in events if event["what"] == "serves")
        return versions / str(last)

    def processes(self, *marks: str) -> list[psutil.Process]:
        """The local server's, its models', door's and keeper's; or those that bear a mark."""
        run = str(self.path / "build" / "run")
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            # One that came up beside another has a folder in that one's, and a longer prefix.
            marks_of_ours = (self.shm_prefix[:-1], f"={run} ", f"={run}/b ", f"{run}/")
            ours = any(mark in words for mark in marks_of_ours)
            if ours and all(mark in words for mark in marks):
                found.append(process)
        return found

    def kill(self) -> None:
        """All of them, from above, so that nobody starts anybody afresh."""
        for process in sorted(self.processes(), key=lambda each: each.create_time()):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def end(self) -> None:
        """After a test, where a server of processes is not looked at any more: in order it would
        stop within seconds, or half a minute if it has lost a process."""
        self.kill()
        self.make("down")

    def readiness(self) -> int:
        """As a load balancer asks; 0 where nobody answers."""
        connection = http.client.HTTPConnection(self.http, timeout=10)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def server_began(self) -> str:
        """Another answer after each start, by whomever it was started."""
        if self.settings["FLAVOUR"] == "local":
            return str(self.root())
        found = self.container()
        return found + run("docker", "inspect", "--format", "{{.State.StartedAt}}", found)

    def root(self, service: str = "server") -> int:
        """The process that `make up` started; in a container what Docker did."""
        if self.settings["FLAVOUR"] == "local":
            return int(json.loads((self.path / "build/run/state.json").read_text())["pid"])
        return int(run("docker", "inspect", "--format", "{{.State.Pid}}", self.container(service)))

    def container(self, service: str = "server") -> str:
        """Its id, while it runs."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str = "server") -> list[str]:
        """That run; during a hand-over they are two."""
        filters = [word for each in self.labels(service) for word in ("--filter", f"label={each}")]
        return run("docker", "ps", "--quiet", "--no-trunc", *filters).split()

    def labels(self, service: str = "server") -> list[str]:
        """Of its containers."""
        of_it = f"project.working_dir={self.path}", f"service={service}"
        return [f"com.docker.compose.{each}" for each in of_it]

    def temporary_servers(self) -> list[psutil.Process]:
        """Those that a measurement brings up for itself, and their models."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if process.info["cwd"] == str(self.path)
            and any("triton_temporary" in word for word in process.info["cmdline"] or [])
        ]

    def shared_memory(self) -> list[Path]:
        return [path for path in Path("/dev/shm").glob(f"{self.shm_prefix[:-1]}*")]

    @property
    def shm_prefix(self) -> str:
        return f"triton_bundle_{hashlib.sha256(str(self.path).encode()).hexdigest()[:8]}_"


@contextmanager
def asked_meanwhile(ask: Callable[[], int]) -> Iterator[list[int]]:
    """All different answers in a row, until the block ends."""
    answers = [ask()]
    done = threading.Event()

    def ask_on() -> None:
        while not done.wait(0.05):
            if (answer := ask()) != answers[-1]:
                answers.append(answer)

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


def run(*command: str) -> str:
    """The output of a command that must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def words_shown_while(process: subprocess.Popen[Any]) -> set[str]:
    """Every argument that the process list shows, of anyone, until this process has ended."""
    shown: set[str] = set()
    while process.poll() is None:
        time.sleep(0.2)  # between two looks, which cost too
        for other in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # ended meanwhile
                shown |= set(other.read_text(errors="replace").split("\0"))
    return shown


def interrupt(make: subprocess.Popen[str]) -> str:
    """Ctrl-C, as a terminal sends it: to the whole foreground group."""
    os.killpg(make.pid, signal.SIGINT)
    return make.communicate(timeout=60)[0]


def error_lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("error:")]
