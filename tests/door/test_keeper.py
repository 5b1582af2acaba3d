"""A keeper with a real server and its door: what their users notice first."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest

from bundle_door import certificate
from bundle_door.key_file import hash_key
from bundle_serving import keeper_notes, sockets
from bundle_serving.exposure import CERTIFICATE
from bundle_serving.kserve import pb, stub
from tests.door.servers import KEY, MODELS, removed_afterwards
from tests.project import ROOT, free_ports, wait_until

GUARD, KEEPER = "bundle_keeper.afresh", "bundle_keeper"
JPEG = b"\xff\xd8picture"
RAW = {"Inference-Header-Content-Length": "0", "authorization": f"Bearer {KEY}"}


@dataclass
class Kept:
    run_dir: Path
    http_port: int
    grpc_port: int
    # The certificate of its ports, where they want TLS.
    tls: Path | None

    def ask(self, method: str, path: str, body: bytes | None = None) -> int:
        """0 where nobody answers."""
        connection: http.client.HTTPConnection
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.tls))
            connection = http.client.HTTPSConnection(
                "localhost", self.http_port, timeout=60, context=context
            )
        else:
            connection = http.client.HTTPConnection("localhost", self.http_port, timeout=60)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, RAW)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def ready(self) -> bool:
        return self.ask("GET", "/v2/health/ready") == 200

    def answers(self) -> bool:
        over_http = self.ask("POST", "/v2/models/picture/infer", JPEG)
        asked = pb.ModelInferRequest(model_name="picture", raw_input_contents=[JPEG])
        asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
        target, key = f"localhost:{self.grpc_port}", [("authorization", RAW["authorization"])]
        opened = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials(self.tls.read_bytes()))
            if self.tls
            else grpc.insecure_channel(target)
        )
        with opened as channel:
            try:
                return bool(
                    over_http == 200
                    and stub(channel).ModelInfer(asked, timeout=60, metadata=key).outputs
                )
            except grpc.RpcError:
                return False

    def process(self, module: str) -> int:
        """Python's, where it is the module's; else 0."""
        for each in self.processes():
            if each.cmdline()[1:3] == ["-m", module]:
                return each.pid
        return 0

    def processes(self) -> list[psutil.Process]:
        """Whoever they belong to now."""
        named = str(self.run_dir)
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if any(named in word for word in each.info["cmdline"] or ())
        ]

    def kill(self, module: str) -> int:
        number: int = wait_until(lambda: self.process(module), module)
        os.kill(number, signal.SIGKILL)
        return number

    def did(self) -> list[str]:
        return [event["did"] for event in keeper_notes.read(self.run_dir).get("events", [])]


@pytest.fixture(params=["plain", "tls and keys"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    run_dir, key, models = (tmp_path / name for name in ("run", "admin.key", "models"))
    key.write_text(KEY)
    shutil.copytree(MODELS / "picture", models / "picture")
    model = models / "picture" / "1" / "model.py"  # which is to take the keeper's picture, a PNG
    model.write_text(model.read_text().replace("or file[0] != 0xFF", ""))
    environment = dict(os.environ)
    if request.param != "plain":
        certificate.ensure(tmp_path, [])
        (tmp_path / "api.keys").write_text(f"ann {hash_key('key-of-ann')}\n")
        environment |= {"BIND": "0.0.0.0", "TLS_FOLDER": str(tmp_path)}
        environment["API_KEYS"] = str(tmp_path / "api.keys")
    http_port, grpc_port, metrics_port = free_ports(3)
    regions = f"kept{os.getpid()}_{http_port}_"
    command = [
        *(sys.executable, "-m", "bundle_keeper.afresh", "--go-on"),
        *(sys.executable, "-m", "bundle_keeper", "--load-model", "picture"),
        *("--run-dir", str(run_dir), "--repository", str(models)),
        *("--admin-key-file", str(key), "--shm-prefix", regions),
        *("--http-port", str(http_port), "--grpc-port", str(grpc_port)),
        *("--metrics-port", str(metrics_port)),
    ]
    with removed_afterwards(regions):
        guard = subprocess.Popen(command, env=environment, cwd=ROOT)
        tls = tmp_path / CERTIFICATE if request.param != "plain" else None
        made = Kept(run_dir, http_port, grpc_port, tls)
        try:
            wait_until(lambda: made.ready() and made.answers(), "the server", 120)
            yield made
        finally:
            for each in sorted(made.processes(), key=psutil.Process.create_time):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()  # from above, so that nobody starts anybody afresh
            guard.wait()


@pytest.mark.long
def test_sockets_that_somebody_deleted(kept: Kept) -> None:
    """Who has a connection goes on for a while; nobody gets a new one."""
    folder = sockets.folder(kept.run_dir)
    for socket in folder.iterdir():
        socket.unlink()
    kept.kill("bundle_door")
    wait_until(lambda: any("socket" in did for did in kept.did()), "a new server", 120)
    wait_until(lambda: kept.ready() and kept.answers(), "users to be answered", 120)
    assert (folder / sockets.GRPC).is_socket()


@pytest.mark.long
def test_a_door_that_lets_nobody_in(kept: Kept) -> None:
    """Its processes live, and its sockets answer, but nobody comes from the port to them."""
    (sockets.folder(kept.run_dir) / sockets.HTTP).rename(kept.run_dir / "elsewhere")
    wait_until(lambda: any("door" in did for did in kept.did()), "the door to be restarted", 120)
    wait_until(lambda: kept.ready() and kept.answers(), "users to be answered", 120)


def test_a_keeper_without_a_guard_gets_another(kept: Kept) -> None:
    """And nobody who asks notices."""
    keeper, door = kept.process(KEEPER), kept.process("bundle_door")
    kept.kill(GUARD)
    wait_until(lambda: kept.process(GUARD) == keeper and kept.process(KEEPER), "a new guard", 60)
    assert kept.answers() and kept.process("bundle_door") == door
    kept.kill(KEEPER)
    wait_until(lambda: kept.process(KEEPER), "a new keeper", 60)
    assert kept.answers() and kept.process("bundle_door") == door


def test_damaged_notes_are_mended(kept: Kept) -> None:
    file = kept.run_dir / keeper_notes.READINESS
    file.write_bytes(b"\xff{")
    assert kept.ready()
    wait_until(lambda: keeper_notes.readiness(kept.run_dir) == (True, ""), "the keeper to see it")
    assert kept.did() == []
