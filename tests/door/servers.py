"""A real tritonserver on Unix sockets, with small models, and the door before it."""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from bundle_serving.process import sockets
from bundle_serving.process.processes import children_of
from bundle_serving.process.start_server import prepare_server
from tests.project import ROOT, free_ports, wait_until

MODELS = Path(__file__).parent / "models"
KEY = "0123456789abcdef-the-admin-key"


class OverUnixSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(kw_only=True)
class Asked:
    """A door and the Triton behind it, wherever they run."""

    http_port: int
    grpc_port: int
    metrics_port: int
    # The certificate of the ports, where they want TLS.
    tls: Path | None = None
    host: str = "localhost"
    admin_key: str = KEY
    # Of the API keys, where they want one.
    key_file: Path = Path("api.keys")
    # Sent with each request.
    headers: dict[str, str] = field(default_factory=dict)

    def roots(self) -> list[int]:
        """The processes that started all others; the door comes first."""
        raise NotImplementedError

    def envoys(self) -> list[Path]:
        """The sockets on which theirs tell of themselves."""
        raise NotImplementedError

    def connection(self, port: int | None = None) -> http.client.HTTPConnection:
        port = port or self.http_port
        if not self.tls:
            return http.client.HTTPConnection(self.host, port, timeout=60)
        context = ssl.create_default_context(cafile=str(self.tls))
        return http.client.HTTPSConnection(self.host, port, timeout=60, context=context)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        used = connection or self.connection()
        with contextlib.closing(used):
            used.request(method, path, body, self.headers | (headers or {}))
            response = used.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return response.status, named, response.read()


@dataclass(kw_only=True)
class Behind(Asked):
    """One that runs in processes of its own."""

    run_dir: Path
    triton: subprocess.Popen[bytes]
    door: subprocess.Popen[bytes]
    # Triton's own HTTP server, which the door does without: to compare answers with.
    triton_http: Path
    # What Triton was started by.
    command: Sequence[str] = ()
    # The door's further processes.
    workers: Sequence[subprocess.Popen[bytes]] = ()

    def roots(self) -> list[int]:
        return [self.door.pid, self.triton.pid]

    def envoys(self) -> list[Path]:
        return [sockets.folder(self.run_dir) / sockets.ENVOY_ADMIN]

    @contextlib.contextmanager
    def triton_again(self) -> Iterator[None]:
        """As the keeper starts it after it was killed."""
        self.triton.wait()
        for left in ("grpc:1", "metrics:2", "compare:3", "metrics", "compare"):
            (sockets.folder(self.run_dir) / left).unlink(missing_ok=True)
        with process([*self.command], self.run_dir) as self.triton:
            yield

    def ask_triton(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        return self.ask(method, path, body, headers, OverUnixSocket(self.triton_http))


@contextlib.contextmanager
def behind_the_door(
    run_dir: Path,
    repository: Path = MODELS,
    models: Sequence[str] = ("echo", "picture", "text", "boxes", "areas"),
    options: Sequence[str] = (),
    tls: Path | None = None,
    own: Sequence[str] = (),
    host: str = "localhost",
    ports: Sequence[int] = (),
    processes: int = 1,
) -> Iterator[Behind]:
    """`options` are the door's, `own` are Triton's."""
    folder = sockets.folder(run_dir)
    key_file = run_dir / "key"
    key_file.write_text(KEY)
    http_port, grpc_port, metrics_port = ports = ports or free_ports(3)
    regions = f"door{os.getpid()}_{http_port}_"
    command = [*triton_command(run_dir, folder, repository, models, regions), *own]
    options = [*options, f"--door-processes={processes}"]

    def start_door(number: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
        mark = [f"--process={number}"]
        return process(door_command(run_dir, key_file, ports, [*options, *mark]), None)

    with (
        contextlib.ExitStack() as workers,
        removed_afterwards(regions),
        process(command, run_dir) as triton,
        start_door(0) as door,
    ):
        started = [workers.enter_context(start_door(number)) for number in range(1, processes)]
        server = Behind(
            run_dir=run_dir,
            triton=triton,
            door=door,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            triton_http=folder / "compare",
            tls=tls,
            command=command,
            host=host,
            workers=started,
        )
        for number in range(1, processes):
            socket_of = folder / sockets.of_process(sockets.HTTP, number)
            wait_until(socket_of.is_socket, "the further processes")
        wait_until(lambda: answers(server), "the door and Triton")
        yield server


@contextlib.contextmanager
def removed_afterwards(regions: str) -> Iterator[None]:
    """The shared memory that a killed server leaves."""
    try:
        yield
    finally:
        for region in Path("/dev/shm").glob(f"{regions}*"):
            region.unlink()


def answers(server: Behind) -> bool:
    assert server.triton.poll() is None, "Triton has ended"
    assert server.door.poll() is None, "the door has ended"
    try:
        # Triton opens its metrics last, on a busy machine a second later. A door with keys wants
        # one for them.
        metrics = server.connection(server.metrics_port)
        key = {"authorization": f"Bearer {KEY}"}
        return (
            server.ask("GET", "/v2/health/ready")[0] == 200
            and server.ask("GET", "/metrics", headers=key, connection=metrics)[0] == 200
        )
    except OSError:
        return False


def triton_command(
    run_dir: Path, folder: Path, repository: Path, models: Sequence[str], regions: str
) -> list[str]:
    binary, backends, _ = prepare_server(run_dir)
    return [
        str(binary),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        "--strict-readiness=false",
        *(f"--load-model={name}" for name in models),
        f"--backend-config=python,shm-region-prefix-name={regions}",
        "--model-config-name=cpu",
        f"--grpc-address=unix:{folder}/grpc",
        "--grpc-port=1",
        f"--metrics-address=unix:{folder}/metrics",
        "--metrics-port=2",
        f"--http-address=unix:{folder}/compare",
        "--http-port=3",
    ]


def door_command(
    run_dir: Path, key_file: Path, ports: Sequence[int], options: Sequence[str]
) -> list[str]:
    http_port, grpc_port, metrics_port = map(str, ports)
    return [
        *(sys.executable, "-m", "bundle_door"),
        *("--run-dir", str(run_dir), "--admin-key-file", str(key_file)),
        *("--http-port", http_port, "--grpc-port", grpc_port, "--metrics-port", metrics_port),
        *options,
    ]


@contextlib.contextmanager
def process(command: list[str], run_dir: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    environment = prepare_server(run_dir)[2] if run_dir else dict(os.environ)
    started = subprocess.Popen(command, env=environment, cwd=ROOT)
    try:
        yield started
    finally:
        # Quicker than to let them stop in order.
        for each in (*children_of(started.pid), started.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        started.wait()
