"""What the keeper stands on: who starts it afresh, and who holds it off."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import grpc
import psutil
import pytest
import yaml

from bundle_door import door
from bundle_door.paths.metrics import of_keeper
from bundle_door.watching.measures import text
from bundle_keeper import __main__ as program
from bundle_keeper import children, hands, watch
from bundle_keeper.__main__ import GivenUp, Keeper
from bundle_keeper.afresh import GIVEN_UP, START_FAILED
from bundle_keeper.asking import Triton, pb, question
from bundle_keeper.children import Child
from bundle_serving.process import keeper_notes, main_pipeline, processes, sockets, start_server
from bundle_serving.process.keeper_notes import MODEL, Notes
from bundle_serving.process.processes import Process
from bundle_serving.protocol.kserve import ModelConfig
from scripts.base import lock
from tests.project import ROOT, wait_until

# Writes down its number, and starts a child; then it waits, or ends as it is told.
PROGRAM = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()} {child.pid}\\n")
code = sys.argv[2].split(",")[sum(1 for _ in open(sys.argv[1])) - 1]
time.sleep(600) if code == "-" else sys.exit(int(code))
"""


def started(
    notes: Path, codes: str, *options: str, by: str | Path = sys.executable
) -> subprocess.Popen[bytes]:
    """`codes`: how each start of the program ends."""
    command = [sys.executable, "-m", "bundle_keeper.afresh", *options, by, "-c"]
    return subprocess.Popen([*command, PROGRAM, str(notes), codes])


def starts(notes: Path) -> list[list[int]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [[int(number) for number in line.split()] for line in lines]


@pytest.mark.parametrize(("given", "seconds"), [("", 300), ("120.000000", 300), ("1e3", 1000)])
def test_a_start_may_take_as_long_as_is_said(
    given: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = AsyncMock(return_value=0)
    monkeypatch.setattr(program, "_keep", keep)
    monkeypatch.setattr(os, "umask", Mock())
    monkeypatch.setenv("START_TIMEOUT", given)
    monkeypatch.setenv(main_pipeline.VARIABLE, "")
    key = str(tmp_path / "admin.key")
    program.main(["--run-dir", str(tmp_path), "--admin-key-file", key, "--load-model=any"])
    options, _ = keep.call_args.args
    assert options.start_s == options.load_s == seconds


def test_a_killed_program_is_started_afresh_and_finds_its_children(tmp_path: Path) -> None:
    notes = tmp_path / "starts"
    above = started(notes, "-,-")
    ((first, child),) = wait_until(lambda: starts(notes), "the first start")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(starts(notes)) == 2, "the second start")
    assert psutil.Process(child).ppid() == above.pid
    everyone = [number for start in starts(notes) for number in start]
    above.terminate()
    assert above.wait(30) == 0
    assert not any(psutil.pid_exists(number) for number in everyone)


def test_where_a_program_is_gone_nothing_of_it_is_left(tmp_path: Path) -> None:
    notes, python = tmp_path / "starts", tmp_path / "python"
    python.symlink_to(sys.executable)
    above = started(notes, "-,-", "--go-on", by=python)
    ((first, child),) = wait_until(lambda: starts(notes), "the first start")
    python.unlink()
    os.kill(first, signal.SIGKILL)
    assert above.wait(30) == 0
    assert not psutil.pid_exists(child)


def test_a_child_that_another_parent_has_waited_for_is_ended() -> None:
    async def end() -> None:
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as program:
            child = Child(program.pid)
            program.kill()
            program.wait()
            await child.end(5)
            assert not child.runs

    asyncio.run(end())


def test_shared_memory_is_shut_and_what_others_put_there_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, target = f"{tmp_path.name}_{os.getpid()}_", tmp_path / "mine"
    region, link = (Path(f"/dev/shm/{prefix}{name}") for name in ("region", "link"))
    for each in (region, target):
        each.touch()
        each.chmod(0o644)
    link.symlink_to(target)
    try:
        children._shut(prefix)
        assert [each.stat().st_mode & 0o777 for each in (region, target)] == [0o600, 0o644]
        monkeypatch.setattr(Path, "is_symlink", lambda _: False)  # it became one just now
        children._shut(prefix)
        assert target.stat().st_mode & 0o777 == 0o644
        monkeypatch.setattr(os, "fchmod", Mock(side_effect=PermissionError))  # another user's
        children._shut(prefix)
    finally:
        region.unlink()
        link.unlink()


def test_only_a_models_process_is_ended_for_one_that_was_replaced() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:  # which has its number now
        asyncio.run(watch._end_when_idle([other.pid]))
        assert other.poll() is None
        other.kill()


def test_a_stopped_program_is_woken(tmp_path: Path) -> None:
    notes = tmp_path / "starts"
    above = started(notes, "-")
    ((program, _),) = wait_until(lambda: starts(notes), "the start")
    os.kill(program, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(program).status() != psutil.STATUS_STOPPED, "it to be woken")
    above.terminate()
    assert above.wait(30) == 0 and len(starts(notes)) == 1


@pytest.mark.parametrize(
    ("codes", "options", "number", "end"),
    [
        (f"{START_FAILED}", ("--go-on",), 1, START_FAILED),  # it never came up
        (f"{GIVEN_UP}", (), 1, GIVEN_UP),  # it gave up, and somebody above tries again
        (f"{GIVEN_UP},1,0", ("--go-on",), 3, 0),
    ],
)
def test_a_program_that_ends_by_itself(
    tmp_path: Path, codes: str, options: tuple[str, ...], number: int, end: int
) -> None:
    notes = tmp_path / "starts"
    assert started(notes, codes, *options).wait(60) == end
    assert len(starts(notes)) == number
    assert not any(psutil.pid_exists(each) for start in starts(notes) for each in start)


def test_a_command_holds_the_keepers_hands_off(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock"
    happened = []

    async def keeper() -> None:
        async with hands.Hands(file).hold_for_keeper():
            happened.append("keeper")

    with lock.hands_off(file):
        keeping = threading.Thread(target=lambda: asyncio.run(keeper()))
        keeping.start()
        with lock.hands_off(file):  # commands do not hold each other up
            happened.append("command")
    keeping.join(30)
    assert happened == ["command", "keeper"]


def test_a_lock_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it wants a file that is open for writing; and what has no locks holds nobody up."""
    file, can_lock = tmp_path / "lock", True

    def flock(lock: Any, how: int) -> None:
        if not (can_lock and fcntl.fcntl(lock, fcntl.F_GETFL) & os.O_RDWR):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(lock, how)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with lock.hands_off(file), hands.Hands(file).on_if_free() as free:
        assert not free
    can_lock = False
    with hands.Hands(file).on_if_free() as free:
        assert free


def test_a_command_that_hangs_does_not_stop_the_keeper(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lock"

    async def keeper() -> None:
        async with hands.Hands(file, longest_s=0.5).hold_for_keeper():
            pass

    with lock.hands_off(file):
        asyncio.run(keeper())
    assert f"since process {os.getpid()} has held {file} too long" in capfd.readouterr().err


def test_the_next_keeper_knows_what_the_last_one_did(tmp_path: Path) -> None:
    notes = Notes.resume(tmp_path)
    assert notes.are_new and not Notes.resume(tmp_path).are_new
    assert keeper_notes.readiness(tmp_path) == (False, "it is starting")
    notes.say(True)
    notes.note_restored(MODEL, "reloaded it")
    notes.remember(["cascade"])
    assert keeper_notes.readiness(tmp_path) == (True, "")
    assert 'bundle_restored_total{what="model"} 1' in text(of_keeper(tmp_path))
    later = Notes.resume(tmp_path)
    assert later.extra_pipelines == ["cascade"]
    assert [event["did"] for event in keeper_notes.read(tmp_path)["events"]] == ["reloaded it"]
    assert keeper_notes.parse_notes(b"") == {}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"ready": 1}', b"null"])
def test_damaged_notes_are_read_as_none_and_mended(
    tmp_path: Path, damage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = Notes.resume(tmp_path)
    notes.say(True)
    kept = (file := tmp_path / keeper_notes.STATE).read_bytes()
    file.write_bytes(damage)
    assert keeper_notes.readiness(tmp_path) is None and of_keeper(tmp_path) == []
    assert keeper_notes.read(tmp_path).get("events", []) == []
    assert Notes.resume(tmp_path).extra_pipelines == []
    file.write_bytes(damage)
    notes.say(True)  # as at each look
    assert file.read_bytes() == kept
    assert keeper_notes.readiness(tmp_path) == (True, "")
    assert capfd.readouterr().err.count(f"{file.name} was damaged: wrote it again") == 1


def test_a_models_process_tells_which_it_is() -> None:
    arguments = ("/run/triton_python_backend_stub", "/models/net/2/model.onnx", "region", "1", "1")
    stub = Process(1, 0, (*arguments, "7", "/backends", "336", "net_0_1", "DEFAULT"))
    assert stub.instance == ("net_0", "2") and stub.name == "net_0_1"
    assert Process(1, 0, ("/bin/tritonserver",)).instance is None


class WaitsForS3:
    """Triton, which answers requests meanwhile, but tells nothing more about its models."""

    def __init__(self) -> None:
        self.told = False

    async def ModelConfig(self, asked: Any, timeout: float) -> Any:
        if self.told:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, nothing, nothing)
        self.told = True
        config = ModelConfig(name=asked.name)
        config.input.add(name="INPUT", data_type="TYPE_UINT8", dims=[-1])
        return pb.ModelConfigResponse(config=config)

    async def ModelInfer(self, asked: Any, timeout: float) -> Any:
        return pb.ModelInferResponse(model_name=asked.model_name)


def test_what_was_learned_before_is_asked_while_triton_waits_for_s3(tmp_path: Path) -> None:
    async def ask() -> None:
        triton = Triton(tmp_path, "own")
        triton._stub = WaitsForS3()
        await triton.learn("first")
        assert await triton.ask("first", 1) is None
        refusal = await triton.ask("second", 1)
        assert refusal and refusal.busy

    asyncio.run(ask())


def test_a_pipeline_with_a_large_example_is_read(tmp_path: Path) -> None:
    def answer(asked: Any, _: Any) -> Any:
        config = ModelConfig(name=asked.name)
        config.parameters["example"].string_value = "A" * (5 << 20)
        return pb.ModelConfigResponse(config=config)

    method = grpc.unary_unary_rpc_method_handler(
        answer, pb.ModelConfigRequest.FromString, pb.ModelConfigResponse.SerializeToString
    )
    service = "inference.GRPCInferenceService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"ModelConfig": method})]
    )
    server.add_insecure_port(sockets.target(folder := sockets.folder(tmp_path)))
    server.start()

    async def read() -> Any:
        return await Triton(folder, "own").config("mine")

    try:
        assert asyncio.run(read()).name == "mine"
    finally:
        server.stop(None)


@pytest.mark.parametrize(
    ("name", "datatype", "dims", "shape"),
    [
        ("INPUT", "UINT8", [-1], [1, 67]),
        ("image", "STRING", [1], [1, 1]),
        ("TEXT", "STRING", [1], [1, 1]),
        ("input_0", "FP32", [-1, -1, 3], [1, 1, 1, 3]),
    ],
)
def test_a_pipeline_is_asked_by_its_kind(
    name: str, datatype: str, dims: list[int], shape: list[int]
) -> None:
    config = ModelConfig(name="pipeline", max_batch_size=4)
    config.input.add(name=name, data_type=f"TYPE_{datatype}", dims=dims)
    asked = question(config, "own")
    assert asked.id == "own"
    assert list(asked.inputs[0].shape) == shape
    size = 12 if datatype == "FP32" else len(asked.raw_input_contents[0])
    assert len(asked.raw_input_contents[0]) == size > 0


def test_at_a_stop_each_part_gets_as_long_as_those_inside_it_plan() -> None:
    assert start_server.DOOR_EXIT_S > door.LEAVE_S + door.DRAIN_S + door.CONNECTIONS_S
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert int(services["server"]["stop_grace_period"].removesuffix("s")) > start_server.STOP_S


def test_a_server_whose_command_is_gone_does_not_answer_beside_another() -> None:
    """Nobody would end the other one."""
    command = subprocess.Popen(["true"])
    command.wait()
    keeper = MagicMock(_is_door=lambda *_: False, _loaded_all=AsyncMock())
    keeper._options.door_last = command.pid
    with pytest.raises(GivenUp, match="the command is gone"):
        asyncio.run(Keeper._keep_door(keeper))
    keeper._start_door.side_effect = InterruptedError("it opens")
    for keeper._options.door_last, keeper._notes.are_new in ((os.getpid(), True), (1 << 30, False)):
        with pytest.raises(InterruptedError, match="it opens"):
            asyncio.run(Keeper._keep_door(keeper))


def test_what_ends_with_its_parent() -> None:
    ends = processes.end_with_parent(signal.SIGKILL)
    starts = f"import subprocess; each = subprocess.Popen([*{ends}, 'sleep', '60']); each.wait()"
    parent = psutil.Popen([sys.executable, "-c", starts])
    wait_until(lambda: [each.name() for each in parent.children()] == ["sleep"], "its start")
    (child,) = parent.children()
    parent.kill()
    parent.wait()
    child.wait(60)
