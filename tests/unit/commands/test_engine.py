"""A Docker engine that ends, hangs or refuses in the middle of a command; and a full disk."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

import docker
from bundle_client import __version__
from scripts import bootstrap
from scripts.artefacts.manifest import read_pins
from scripts.artefacts.step import Step
from scripts.base import console, files, interrupts, reader
from scripts.base.errors import UserError, run_guarded
from scripts.base.paths import ROOT
from scripts.server import up
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import containers, images, local, state
from scripts.stacks.compose import ONE_OFF, SERVICE
from scripts.stacks.containers import DockerStack
from scripts.stacks.docker_engine import require_done
from scripts.stacks.state import State

REFUSAL = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
    b'Content-Length: 26\r\n\r\n{"message": "it is broken"}'
)


@pytest.fixture
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[docker.DockerClient]:
    """One that answers each request so."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker"))
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    asked, _ = listener.accept()
                except OSError:
                    return
                with asked:
                    asked.recv(65536)
                    asked.sendall(request.param)

        threading.Thread(target=answer, daemon=True).start()
        yield docker.DockerClient(f"unix://{tmp_path}/docker", version="1.43", timeout=5)
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("engine", [b"", REFUSAL, b"no HTTP"], indirect=True)
def test_an_engine_that_ends_in_the_middle_is_one_line(
    engine: docker.DockerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> int:
        container = engine.containers.prepare_model({"Id": "abc"})
        container.stop()
        return 0

    assert run_guarded(stop) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Docker refuses or does not answer (")
    assert "make doctor" in line


BAD_REQUEST = REFUSAL.replace(b"500 Internal Server Error", b"400 Bad Request")


@pytest.mark.parametrize("engine", [BAD_REQUEST], indirect=True)
def test_a_fault_of_ours_beside_docker_keeps_its_traceback(engine: docker.DockerClient) -> None:
    def mistake_what_it_says() -> int:
        try:
            engine.containers.get("abc")
        except docker.errors.APIError:
            return {"it": 1}["another"]
        return 0

    wrong: dict[Callable[[], int], type[Exception]] = {
        lambda: len(Path("/nowhere").read_text()): FileNotFoundError,
        lambda: bool(engine.containers.get("")): docker.errors.NullResource,
        lambda: bool(engine.containers.get("abc")): docker.errors.APIError,
        mistake_what_it_says: KeyError,
    }
    for call, kind in wrong.items():
        with pytest.raises(kind):
            run_guarded(call)


def test_of_a_full_disk_the_remedy_is_room() -> None:
    said = "Error: write /dev/stdout: no space left on device\n"
    with pytest.raises(UserError, match="no space left") as refused:
        require_done(subprocess.CompletedProcess([], 1, "", said), "Docker cannot save it")
    assert refused.value.remedy.startswith("make room")


class OfDocker(SimpleNamespace):
    is_removed = False

    def logs(self) -> bytes:
        return b"its log"

    def remove(self, **_: Any) -> None:
        self.is_removed = True


def test_on_a_full_disk_no_server_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log cannot be written."""
    left = OfDocker()
    stack = DockerStack(Settings(DEFAULTS))
    monkeypatch.setattr(stack.compose, "find_beside", lambda: [left])
    monkeypatch.setattr(state, "REFUSED", tmp_path)  # a folder
    with pytest.raises(IsADirectoryError):
        stack.withdraw(State("cpu", "", {}))
    assert left.is_removed


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_others_are_not_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """Secrets that COMPOSE_OVERRIDE names, and what clients sent."""
    stack, wanted = DockerStack(Settings(DEFAULTS)), Mock()
    monkeypatch.setattr(files, "is_shared", lambda: is_shared)
    monkeypatch.setattr(state, "REFUSED", tmp_path / "refused")
    for name in ("SERVED", "BESIDE"):
        monkeypatch.setattr(containers, name, tmp_path / name)
    for name in ("ports", "dotenv_file"):
        monkeypatch.setattr(containers, name, Mock())
    monkeypatch.setattr(stack.compose, "list_started_here", list)
    monkeypatch.setattr(stack.compose, "find_beside", lambda: [OfDocker()])
    monkeypatch.setattr(stack.compose, "remove_networks", lambda _: None)
    monkeypatch.setattr(stack, "_compose_up", Mock())
    monkeypatch.setattr(stack, "_configure", lambda _: {"services": {"ports": {}}})

    def find_modes() -> dict[str, int]:
        return {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    mode = 0o660 if is_shared else 0o600
    stack.start(wanted)
    stack.start_beside(wanted, wanted, [])
    assert find_modes() == {"SERVED": mode, "BESIDE": mode}
    stack.withdraw(wanted)
    assert find_modes() == {"SERVED": mode, "refused": mode}
    state.REFUSED.unlink()
    up._keep_log(Mock(log=lambda: "its log"))
    assert find_modes()["refused"] == mode


def test_ctrl_c_while_a_private_server_starts_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[OfDocker] = []
    stack = DockerStack(Settings(DEFAULTS))

    def run(*words: str, **_: Any) -> None:
        started.append(OfDocker(name=words[words.index("--name") + 1]))
        raise KeyboardInterrupt

    monkeypatch.setattr(stack.compose, "run", run)
    monkeypatch.setattr(stack.compose, "list_containers", lambda *_: [*started])
    monkeypatch.setattr(stack.compose, "remove_networks", lambda _: None)
    with pytest.raises(KeyboardInterrupt), stack.temporary(tmp_path, tmp_path / "log", "birds"):
        pass
    assert [each.is_removed for each in started] == [True]
    assert (tmp_path / "log").read_text() == "its log"


def test_what_a_killed_command_has_run_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what measures for somebody else."""
    once = {name: OfDocker(labels={SERVICE: name}) for name in ("server", "export", "sdk")}
    stack = DockerStack(Settings(DEFAULTS))
    monkeypatch.setattr(stack.compose, "require_own", lambda: None)
    monkeypatch.setattr(
        stack.compose,
        "list_containers",
        lambda label: [*once.values()] if label == f"{ONE_OFF}=True" else [],
    )
    monkeypatch.setattr(containers, "let_steps_read", Mock(side_effect=UserError("no more", "")))
    with pytest.raises(UserError, match="no more"):
        stack.prepare()
    assert [name for name, each in once.items() if each.is_removed] == ["server", "export"]


def test_a_key_is_not_for_containers_in_a_folder_that_a_umask_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "admin.key"
    assert not containers._is_for_containers(key)
    key.touch()
    key.chmod(0o640)
    monkeypatch.setattr(reader, "READER", key.stat().st_gid)
    for mode in (0o755, 0o750):
        tmp_path.chmod(mode)
        assert containers._is_for_containers(key) == (mode == 0o755)


def test_half_a_wheel_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip leaves it on a full disk, or when it is killed."""
    pins = read_pins("torch", "torchvision")
    answers = [1, 0]

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        there = Path(command[command.index("--dest") + 1])
        for name, version in pins.items():
            (there / f"{name}-{version}-x.whl").write_text("")
        return subprocess.CompletedProcess(command, answers.pop(0), "", "no space left on device")

    monkeypatch.setattr(images, "WHEELS", tmp_path)
    monkeypatch.setattr(bootstrap, "pip_settings", dict)
    monkeypatch.setattr(bootstrap, "torch_index", str)
    monkeypatch.setattr(subprocess, "run", download)
    (tmp_path / ".killed.tmp").mkdir()
    with pytest.raises(UserError, match="PyTorch cannot be fetched"):
        images.fetch_torch()
    assert not any(tmp_path.iterdir())
    images.fetch_torch()
    images.fetch_torch()
    assert len([*tmp_path.iterdir()]) == 2 and not answers


def test_a_full_disk_is_told_where_an_image_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "failed to solve: write /var/lib/docker/x: no space left on device\n"
    built = subprocess.CompletedProcess([], 17, "", said)
    compose = Mock(project="birds", run=lambda *_, **__: built)
    for terminal, remedy in ((False, "make room"), (True, "run make doctor")):
        monkeypatch.setattr(console, "out", Mock(is_terminal=terminal, width=80))
        made = images.Images(Settings(DEFAULTS), compose, "")
        with pytest.raises(UserError, match="the image of server cannot be built") as refused:
            made.build("server")
        assert refused.value.remedy.startswith(remedy)


def test_images_of_earlier_releases_go() -> None:
    here, theirs = "birds-server:latest", "registry.example/team/triton-bundle-server"

    def make(id: str, *tags: str) -> SimpleNamespace:
        return SimpleNamespace(id=id, tags=[*tags], attrs={"Size": 1, "Created": "2026-11-30"})

    def list_images(name: str = "", filters: object = None) -> list[SimpleNamespace]:
        old = make("old", f"{theirs}:1")
        of_swarm = make("of a swarm", "birds-server:0123456789ab")
        of_project = [make("now", here, f"{theirs}:1"), make("replaced"), old, of_swarm]
        there = [make("other", f"{theirs}:2", "owls-server:latest"), make("used", f"{theirs}:3")]
        fetched = [old, *there, make("current", f"{theirs}:{__version__}")]
        return of_project if filters else fetched if name == theirs else []

    engine = Mock()
    engine.images.list = list_images
    engine.containers.list.return_value = [SimpleNamespace(attrs={"ImageID": "used"})]
    compose = Mock(project="birds", engine=engine)
    settings = Settings(DEFAULTS | {"REGISTRY": "registry.example/team"})
    found = images.Images(settings, compose, "").list_replaced()
    assert [names for names, *_ in found] == [
        ["replaced"],
        [f"{theirs}:1"],
        ["birds-server:0123456789ab"],
    ]


def test_of_what_was_built_here_all_images_go_with_the_rest() -> None:
    engine, named = Mock(), SimpleNamespace(id="named", tags=["pushed:1", "pushed:2"])
    engine.images.list.return_value = [named, SimpleNamespace(id="replaced", tags=[])]
    images.Images(Settings(DEFAULTS), Mock(project="birds", engine=engine), "").remove_all()
    removed = [call.args[0] for call in engine.images.remove.call_args_list]
    assert removed[-3:] == ["pushed:1", "pushed:2", "replaced"]


class Ending:
    """A process that ends just when it is looked at, or sent something."""

    def cmdline(self) -> list[str]:
        return [f"--run-dir={local.RUN}"]

    def kill(self) -> None:
        raise psutil.NoSuchProcess(1)

    terminate = kill


def test_processes_that_end_by_themselves_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "RUN", tmp_path)
    monkeypatch.setattr(psutil, "process_iter", lambda: [Ending()])
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: None)
    assert local._clear("")
    local._end_process(Ending())  # type: ignore[arg-type]
    looks = iter([Ending().cmdline()])

    def look(_: Ending) -> list[str]:
        if words := next(looks, None):
            return words
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(Ending, "cmdline", look)
    assert local._guard_of("") is None


def test_a_server_is_known_as_soon_as_it_is_started() -> None:
    """Before its program is loaded, the kernel shows no command of a process."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", f"--run-dir={local.RUN}"]
    for _ in range(10):
        with subprocess.Popen(command) as server:
            assert local._is_of("", psutil.Process(server.pid))
            server.kill()


KILLED = """
import os, signal, sys
from pathlib import Path
import psutil
from scripts.stacks import temporary

def why_not() -> str | None:  # setpriv has to come to it first
    (it,) = psutil.Process().children()
    return None if it.name() == "sleep" else it.name()

with temporary.running("it", ["sleep", "600"], Path(sys.argv[1]), why_not) as pid:
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_private_server_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "log")]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(killed.stdout)).wait(20)


STEP_OF_KILLED = """
import os, signal, threading
import psutil
from scripts.artefacts.step import Step
from scripts.stacks.local import run_here

def kill() -> None:
    while not (steps := psutil.Process().children()):
        pass
    print(steps[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Timer(1, kill).start()
run_here(Step("timeit"), "-n1", "__import__('time').sleep(600)")
"""


def test_a_step_ends_with_a_command_that_is_killed() -> None:
    """The next command's writes to the same files."""
    command = [sys.executable, "-c", STEP_OF_KILLED]
    killed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(killed.stdout)).wait(20)


def test_a_step_trusts_what_ca_bundle_names(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_on: dict[str, str] = {}

    class Done:
        def __init__(self, *_: object, env: dict[str, str], **__: object) -> None:
            handed_on.update(env)

        def __enter__(self) -> SimpleNamespace:
            return SimpleNamespace(wait=lambda: 0)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(subprocess, "Popen", Done)
    monkeypatch.setenv("CA_BUNDLE", "~/company.pem")
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/anns.pem")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    local.run_here(Step("any"))
    assert handed_on["SSL_CERT_FILE"] == "/home/ann/company.pem"
    assert handed_on["REQUESTS_CA_BUNDLE"] == "/anns.pem"


STEP_OF_INTERRUPTED = """
import os, signal, sys, threading
from scripts.artefacts.step import Step
from scripts.base.errors import run_guarded
from scripts.stacks.local import run_here

threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
step = Step("timeit"), "-n1", "__import__('time').sleep(600)"
sys.exit(run_guarded(lambda: run_here(*step)))
"""


def test_a_step_that_ends_without_a_word_is_spoken_for() -> None:
    """By a signal, as where Ctrl-C comes before Python is there."""
    command = [sys.executable, "-c", STEP_OF_INTERRUPTED]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.stderr == "interrupted; partial work was discarded\n"
    assert ended.returncode == interrupts.INTERRUPTED


def test_a_server_is_noted_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next command would find its ports taken by somebody."""
    for module, name in ((local, "RUN"), (local, "LOG"), (state, "PATH")):
        monkeypatch.setattr(module, name, tmp_path / name.lower())
    monkeypatch.setattr(State.save, "__defaults__", (state.PATH,))
    stack = local.LocalStack(Settings(DEFAULTS))
    monkeypatch.setattr("scripts.stacks.local.ports.require_free", Mock())
    monkeypatch.setattr(stack, "_start", Mock(side_effect=SystemExit))
    wanted = State("local", "mark", {})
    with pytest.raises(SystemExit):
        stack.start(wanted)
    assert state.load(state.PATH) == wanted
    guard = Mock()
    monkeypatch.setattr(local, "_guard_of", lambda side: guard if side == "" else None)
    assert local._server(wanted) is guard


def test_compose_gets_seconds_that_it_takes() -> None:
    variables = DockerStack(Settings(DEFAULTS | {"START_TIMEOUT": "1e3"})).compose._environment(
        None
    )
    assert float(variables["START_TIMEOUT"]) == 1000 and "e" not in variables["START_TIMEOUT"]
