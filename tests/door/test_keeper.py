"""A keeper with a real server and its door: what their users notice first."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import psutil
import pytest

from bundle_door.access import certificate
from bundle_door.access.key_file import hash_key
from bundle_door.settings import PROCESSES
from bundle_keeper.afresh import GIVEN_UP
from bundle_serving import drain
from bundle_serving.process import gpu, keeper_notes, sockets
from bundle_serving.process.exposure import CERTIFICATE
from bundle_serving.process.processes import STUB
from bundle_serving.protocol.kserve import pb, stub
from tests.door.servers import KEY, MODELS, removed_afterwards
from tests.project import ROOT, free_ports, wait_until

GUARD, KEEPER = "bundle_keeper.afresh", "bundle_keeper"
LEADING = "bundle_keeper.waiting_room"
AGAIN = "restarted it"
JPEG = b"\xff\xd8picture"
# Before the path of a file: a picture that is answered once that exists.
WAITING = b"\xff\0wait"
# Another model, which is loaded after the first one, and not before a file is there.
LATER = "later"
RAW = {"Inference-Header-Content-Length": "0", "authorization": f"Bearer {KEY}"}
KEYED = [("authorization", RAW["authorization"])]
# In the place of `initialize`.
CRASHES_ONCE = """    def initialize(self, args):
        import os, signal
        if not Path("{crashed}").exists():
            Path("{crashed}").touch()
            os.kill(os.getppid(), signal.SIGABRT)

"""
WAITS = """    def initialize(self, args):
        while not Path("{gate}").exists():
            time.sleep(0.02)

"""


def message(model: str) -> pb.ModelInferRequest:
    asked = pb.ModelInferRequest(model_name=model, raw_input_contents=[JPEG])
    asked.inputs.add(name="INPUT", datatype="UINT8", shape=[1, len(JPEG)])
    return asked


@dataclass
class Kept:
    run_dir: Path
    http_port: int
    grpc_port: int
    # The certificate of its ports, where they want TLS.
    tls: Path | None
    guard: subprocess.Popen[bytes]

    def ask(self, method: str, path: str, body: bytes | None = None) -> int:
        """0 where nobody answers."""
        with contextlib.closing(self.connection()) as connection:
            try:
                connection.request(method, path, body, RAW)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def connection(self) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection("localhost", self.http_port, timeout=60)
        context = ssl.create_default_context(cafile=str(self.tls))
        return http.client.HTTPSConnection("localhost", self.http_port, timeout=60, context=context)

    def ready(self) -> bool:
        return self.ask("GET", "/v2/health/ready") == 200

    @property
    def gate(self) -> Path:
        """Without this file the other model does not load."""
        return self.run_dir / "gate"

    def channel(self) -> grpc.Channel:
        target = f"localhost:{self.grpc_port}"
        if not self.tls:
            return grpc.insecure_channel(target)
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(self.tls.read_bytes()))

    def answers(self) -> bool:
        over_http = self.ask("POST", "/v2/models/picture/infer", JPEG)
        with self.channel() as channel:
            try:
                return over_http == 200 and bool(
                    stub(channel).ModelInfer(message("picture"), timeout=60, metadata=KEYED).outputs
                )
            except grpc.RpcError:
                return False

    def process(self, name: str) -> int:
        """The module's of Python, or the program's; else 0."""
        for each in self.processes():
            words = each.info["cmdline"]
            if words[1:3] == ["-m", name] or Path(words[0]).name == name:
                return each.pid
        return 0

    def processes(self) -> list[psutil.Process]:
        """Whoever they belong to now, the oldest first: numbers begin anew after the largest."""
        named = str(self.run_dir)
        found = [
            each
            for each in psutil.process_iter(["cmdline", "create_time"])
            if any(named in word for word in each.info["cmdline"] or ())
        ]
        return sorted(found, key=lambda each: float(each.info["create_time"]))

    def kill(self, name: str) -> int:
        number: int = wait_until(lambda: self.process(name), name)
        os.kill(number, signal.SIGKILL)
        return number

    def did(self) -> list[str]:
        return [event["did"] for event in keeper_notes.read(self.run_dir).get("events", [])]


PLAIN, KEYED_TLS, TWO, GPU = "plain", "tls and keys", "two processes", "a GPU"
IMPATIENT, ASKED = "impatient", "impatient, asked from its start"
CRASHES = "crashes at its first start"


@pytest.fixture(params=[PLAIN, pytest.param(KEYED_TLS, marks=pytest.mark.rare)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    run_dir, key, models = (tmp_path / name for name in ("run", "admin.key", "models"))
    key.write_text(KEY)
    shutil.copytree(MODELS / "picture", models / "picture")
    model = models / "picture" / "1" / "model.py"  # which is to take the keeper's picture, a PNG
    model.write_text(model.read_text().replace("or file[0] != 0xFF", ""))
    add_another(models, run_dir / "gate")
    (tmp_path / keeper_notes.BESIDE).write_text(json.dumps([LATER]))
    environment = dict(os.environ)
    if request.param == TWO:
        environment[PROCESSES] = "2"
    if request.param == GPU:
        add_gpu(tmp_path, model)
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    if request.param == CRASHES:
        initialize(model, CRASHES_ONCE.format(crashed=tmp_path / "crashed"))
    if request.param == KEYED_TLS:
        certificate.ensure(tmp_path, [])
        (tmp_path / "api.keys").write_text(f"ann {hash_key('key-of-ann')}\n")
        environment |= {"BIND": "0.0.0.0", "TLS_FOLDER": str(tmp_path)}
        environment["API_KEYS"] = str(tmp_path / "api.keys")
    http_port, grpc_port, metrics_port = free_ports(3)
    regions = f"kept{os.getpid()}_{http_port}_"
    command = [
        *(sys.executable, "-m", "bundle_keeper.afresh"),
        *(["--go-on"] if request.param != GPU else []),  # as in a container
        *(sys.executable, "-m", "bundle_keeper", "--load-model", "picture"),
        *("--run-dir", str(run_dir), "--repository", str(models)),
        *("--admin-key-file", str(key), "--hands-off", str(tmp_path / "hands-off")),
        *("--shm-prefix", regions),
        *("--http-port", str(http_port), "--grpc-port", str(grpc_port)),
        *("--metrics-port", str(metrics_port)),
    ]
    if request.param in (IMPATIENT, ASKED):
        command.append("--load-s=3")
    if request.param == ASKED:
        command += ["--extra-pipelines", LATER]
    with removed_afterwards(regions):
        guard = subprocess.Popen(command, env=environment, cwd=ROOT)
        tls = tmp_path / CERTIFICATE if request.param == KEYED_TLS else None
        made = Kept(run_dir, http_port, grpc_port, tls, guard)
        try:
            wait_until(lambda: made.ready() and made.answers(), "the server", 120)
            yield made
        finally:
            for each in sorted(made.processes(), key=psutil.Process.create_time):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()  # from above, so that nobody starts anybody afresh
            guard.wait()


def add_another(models: Path, gate: Path) -> None:
    shutil.copytree(MODELS / "picture", models / LATER)
    replace(models / LATER / "config.pbtxt", 'name: "picture"', f'name: "{LATER}"')
    initialize(models / LATER / "1" / "model.py", WAITS.format(gate=gate))


def initialize(model: Path, how: str) -> None:
    replace(model, "    def initialize(self, args):\n        pass\n\n", how)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_a_new_server_has_not_loaded_yet_is_waited_for(kept: Kept) -> None:
    """Over HTTP, gRPC, and in a stream; what it is not to load is not."""
    kept.gate.touch()
    path = f"/v2/models/{LATER}/infer"
    wait_until(lambda: kept.ask("POST", path, JPEG) == 200, "the other model")
    kept.gate.unlink()
    kept.kill("tritonserver")
    wait_until(kept.answers, "the first model")
    with kept.channel() as channel, ThreadPoolExecutor() as background:
        asked = stub(channel)
        described = pb.ModelMetadataRequest(name=LATER)
        over_http = [
            background.submit(kept.ask, "POST", path, JPEG),
            background.submit(kept.ask, "GET", f"/v2/models/{LATER}"),
        ]
        over_grpc = [
            background.submit(asked.ModelInfer, message(LATER), timeout=120, metadata=KEYED),
            background.submit(asked.ModelMetadata, described, timeout=120, metadata=KEYED),
            background.submit(
                lambda: (
                    next(
                        asked.ModelStreamInfer(iter([message(LATER)]), timeout=120, metadata=KEYED)
                    ).infer_response
                )
            ),
        ]
        assert kept.ask("POST", "/v2/models/unknown/infer", JPEG) == 404
        with pytest.raises(grpc.RpcError) as refused:
            asked.ModelInfer(message("unknown"), timeout=60, metadata=KEYED)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        assert kept.answers()
        assert not any(each.done() for each in (*over_http, *over_grpc))
        kept.gate.touch()
        assert all(each.result() == 200 for each in over_http)
        assert all(each.result().outputs for each in over_grpc)
    wait_until(lambda: keeper_notes.read_coming(kept.run_dir) == [], "the note to say so")


@pytest.mark.parametrize("kept", [CRASHES], indirect=True)
def test_a_server_that_crashes_as_it_starts_gets_another_start(kept: Kept) -> None:
    wait_until(lambda: kept.did() == [f"the server had exited (SIGABRT): {AGAIN}"], "its note")


def test_sockets_that_somebody_deleted(kept: Kept) -> None:
    """Who has a connection goes on for a while; nobody gets a new one."""
    folder = sockets.folder(kept.run_dir)
    for each in folder.iterdir():
        each.unlink()
    kept.kill("bundle_door")
    wait_until(lambda: any("socket" in did for did in kept.did()), "a new server", 120)
    wait_until(lambda: kept.ready() and kept.answers(), "users to be answered", 120)
    assert (folder / sockets.GRPC).is_socket()


def test_a_door_that_lets_nobody_in(kept: Kept) -> None:
    """Its processes live, and its sockets answer, but nobody comes from the port to them."""
    (sockets.folder(kept.run_dir) / sockets.HTTP).rename(kept.run_dir / "elsewhere")
    wait_until(lambda: any("door" in did for did in kept.did()), "the door to be restarted", 120)
    wait_until(lambda: kept.ready() and kept.answers(), "users to be answered", 120)


@pytest.mark.parametrize("kept", [TWO], indirect=True)
def test_a_further_process_of_the_door(kept: Kept) -> None:
    """One that is gone is started again, while the first one answers; the next keeper finds it."""

    def find() -> list[int]:
        return [each.pid for each in kept.processes() if "--process=1" in each.info["cmdline"]]

    def is_reached() -> bool:
        return sockets.is_listening(sockets.folder(kept.run_dir) / "http.1")

    (before,) = find()
    door = kept.process("bundle_door")
    os.kill(before, signal.SIGKILL)
    assert all(kept.answers() for _ in range(4))
    wait_until(lambda: is_reached() and find() != [before], "another one", 60)
    wait_until(lambda: kept.did() == [f"process 1 of the door had exited: {AGAIN}"], "its note")
    (after,) = find()
    kept.kill(KEEPER)
    wait_until(lambda: kept.process(KEEPER), "a new keeper", 60)
    assert all(kept.answers() for _ in range(4))
    assert find() == [after] and kept.process("bundle_door") == door


@pytest.mark.parametrize("kept", [TWO], indirect=True)
def test_a_further_process_that_nobody_reaches(kept: Kept) -> None:
    (sockets.folder(kept.run_dir) / "http.1").unlink()
    hung = f"process 1 of the door hung: {AGAIN}"
    wait_until(lambda: hung in kept.did(), "it to be noticed", 60)
    assert kept.answers()


@pytest.mark.parametrize("kept", [GPU], indirect=True)
def test_a_server_whose_gpu_fails(kept: Kept) -> None:
    """It is started anew at once; and once no GPU is there any more, it is Docker's turn."""
    before = kept.process("tritonserver")
    (kept.run_dir.parent / "fails").write_text(f"{before} unable to enqueue for inference picture")
    wait_until(lambda: any(AGAIN in each for each in kept.did()), "a new server", 120)
    (did,) = [each for each in kept.did() if AGAIN in each]
    assert did.startswith("the server cannot use its GPU any more (unable to enqueue")
    wait_until(kept.answers, "it to answer", 60)
    assert not any("reloaded it" in each for each in kept.did())
    (kept.run_dir.parent / "lost").touch()
    kept.kill("tritonserver")
    assert kept.guard.wait(60) == GIVEN_UP
    assert not any(kept.process(name) for name in ("tritonserver", "bundle_door", "envoy"))


def add_gpu(folder: Path, model: Path) -> None:
    """What NVIDIA's program says of it; and a model that fails as on it, as long as the server is
    the one whose number is noted."""
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\nif [ -e {folder}/lost ]; then echo '{gpu.NVML_LOST}'; exit 255; fi\n"
        "echo 'GPU 0: NVIDIA L4 (UUID: GPU-7a3c)'\n"
    )
    program.chmod(0o755)
    text = model.read_text()
    asked = "    for file in files:\n"
    assert asked in text
    fails = f"""    if (noted := Path("{folder}/fails")).exists():
        server, _, why = noted.read_text().partition(" ")
        if int(server) == os.getppid():
            return refusal(why)
"""
    model.write_text(text.replace(asked, fails + asked).replace("import time", "import os, time"))


def test_a_keeper_without_a_guard_gets_another(kept: Kept) -> None:
    """And nobody who asks notices."""
    keeper, door = kept.process(KEEPER), kept.process("bundle_door")
    kept.kill(GUARD)
    wait_until(lambda: kept.process(GUARD) == keeper and kept.process(KEEPER), "a new guard", 60)
    assert kept.answers() and kept.process("bundle_door") == door
    kept.kill(KEEPER)
    wait_until(lambda: kept.process(KEEPER), "a new keeper", 60)
    assert kept.answers() and kept.process("bundle_door") == door


def is_guard(kept: Kept, number: int) -> bool:
    return kept.process(GUARD) == number


def test_each_guard_that_is_killed_gets_another(kept: Kept) -> None:
    """Server and door go on, whoever started them; and end when the last guard is told to."""
    parts = "bundle_door", "tritonserver"
    numbers = [kept.process(name) for name in parts]
    for _ in range(3):
        keeper = wait_until(lambda: kept.process(KEEPER), "a keeper", 60)
        kept.kill(GUARD)
        wait_until(partial(is_guard, kept, keeper), "a new guard", 60)
    wait_until(lambda: kept.process(KEEPER), "a new keeper", 60)
    assert kept.answers() and [kept.process(name) for name in parts] == numbers
    os.kill(numbers[0], signal.SIGKILL)
    wait_until(lambda: kept.process("bundle_door") not in (0, numbers[0]), "a new door", 60)
    wait_until(kept.answers, "answers", 60)
    os.kill(kept.process(GUARD), signal.SIGTERM)
    wait_until(lambda: not kept.processes(), "the end of all", 60)


@pytest.mark.parametrize("victim", ["bundle_door", "envoy"])
def test_connections_wait_for_another_door(kept: Kept, victim: str) -> None:
    """Nobody is refused, from its end on."""
    envoy, ended = kept.process("envoy"), threading.Event()
    ports = kept.http_port, kept.grpc_port

    def is_kept_open() -> bool:
        opened = psutil.Process(kept.process(KEEPER)).net_connections("tcp")
        return {*ports} <= {each.laddr.port for each in opened if each.status == "LISTEN"}

    def knock(port: int) -> int:
        count = 0
        while not ended.is_set():
            with contextlib.suppress(ConnectionResetError):  # the old one had not accepted it yet
                socket.create_connection(("127.0.0.1", port)).close()
            count += 1
        return count

    with ThreadPoolExecutor(8) as clients:
        wait_until(is_kept_open, "the keeper to have seen the door", 60)
        knocking = [clients.submit(knock, port) for port in ports]
        kept.kill(victim)
        wait_until(lambda: kept.process("envoy") != envoy, "its end", 60)
        ended.set()
        assert all(each.result() for each in knocking)
        with contextlib.closing(kept.connection()) as first:
            assert {*clients.map(lambda _: kept.answers(), range(16))} == {True}
            first.request("POST", "/v2/models/picture/infer", JPEG, RAW)
            assert first.getresponse().status == 200


def test_who_waited_needs_no_keeper(kept: Kept) -> None:
    """While they wait, and as long as their connections last."""

    def ask(connection: http.client.HTTPConnection) -> int:
        connection.request("POST", "/v2/models/picture/infer", JPEG, RAW)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def wait_for_keeper(before: int) -> None:
        wait_until(lambda: kept.process(KEEPER) not in (0, before), "a new keeper", 60)

    keeper = kept.process(KEEPER)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as clients:
        connections = [stack.enter_context(contextlib.closing(kept.connection())) for _ in range(8)]
        kept.kill("envoy")
        wait_until(lambda: kept.process(LEADING), "who leads them on")
        waiting = [clients.submit(ask, each) for each in connections]
        wait_until(lambda: all(each.sock for each in connections), "them to be connected")
        kept.kill(KEEPER)
        assert {each.result() for each in waiting} == {200}
        wait_for_keeper(keeper)
        keeper = kept.kill(KEEPER)
        assert {*clients.map(ask, connections)} == {200}
        wait_for_keeper(keeper)
    wait_until(lambda: not kept.process(LEADING), "its end, with theirs")


def test_a_door_that_listens_no_more(kept: Kept) -> None:
    """It lives, and those who come wait; but not for ever."""
    drain.close_ports(kept.run_dir)
    wait_until(lambda: any("the door" in did for did in kept.did()), "a new door", 120)
    wait_until(kept.answers, "answers", 120)


@pytest.mark.long
def test_a_request_in_flight_at_a_stop_is_answered(kept: Kept) -> None:
    """As long as the door waits for it."""
    answers = kept.run_dir.parent / "answers"
    picture = WAITING + bytes(answers)
    with ThreadPoolExecutor() as client:
        asked = client.submit(kept.ask, "POST", "/v2/models/picture/infer", picture)
        os.kill(kept.process(GUARD), signal.SIGTERM)
        time.sleep(15)
        answers.touch()
        assert asked.result() == 200
    assert kept.guard.wait(60) == 0


def test_a_process_that_died_while_there_was_no_keeper(kept: Kept) -> None:
    """It is missed at once, not once questions fail."""
    kept.gate.touch()
    wait_until(lambda: keeper_notes.read_coming(kept.run_dir) == [], "the other model")
    guard = kept.process(GUARD)
    os.kill(guard, signal.SIGSTOP)
    kept.kill(KEEPER)
    kept.kill(STUB)
    os.kill(guard, signal.SIGCONT)
    wait_until(lambda: any("picture: " in did for did in kept.did()), "a new process", 120)
    assert any("picture: it lacked a process" in did for did in kept.did())
    assert kept.answers()


@pytest.mark.parametrize("kept", [IMPATIENT, ASKED], indirect=True)
def test_a_load_that_hangs_is_given_up(kept: Kept) -> None:
    """With the server, whose other pipelines answer again."""
    why = f"{LATER} did not load within 3 s and is left out: {AGAIN}"
    wait_until(lambda: why in kept.did(), "a restart", 120)
    wait_until(kept.answers, "answers", 120)
    assert keeper_notes.read_coming(kept.run_dir) == []
    assert kept.ask("POST", f"/v2/models/{LATER}/infer", JPEG) == 404


def test_a_load_whose_process_is_killed_is_begun_again(kept: Kept) -> None:
    def find_loading() -> set[int]:
        of_it = (each for each in kept.processes() if any(LATER in w for w in each.info["cmdline"]))
        return {each.pid for each in of_it if Path(each.info["cmdline"][0]).name == STUB}

    first = wait_until(find_loading, "the load to begin", 60)
    for each in first:
        os.kill(each, signal.SIGKILL)
    wait_until(lambda: find_loading() - first, "another one", 60)
    kept.gate.touch()
    path = f"/v2/models/{LATER}/infer"
    wait_until(lambda: kept.ask("POST", path, JPEG) == 200, "it to be loaded", 60)
    assert kept.answers()


def test_damaged_notes_are_mended(kept: Kept) -> None:
    file = kept.run_dir / keeper_notes.STATE
    file.write_bytes(b"\xff{")
    assert kept.ready()
    wait_until(lambda: keeper_notes.readiness(kept.run_dir) == (True, ""), "the keeper to see it")
    assert kept.did() == []
