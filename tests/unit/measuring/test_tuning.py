import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.ports import free_ports
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU, GPU, Share
from scripts.settings import dotenv_file
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import admin_key, flavour, temporary
from scripts.stacks.state import State
from scripts.tuning.hardware import hardware_of
from scripts.tuning.search import (
    Arena,
    Candidate,
    Goal,
    OnGpu,
    Score,
    axes,
    conclude,
    descend,
    shares,
)

START = Candidate("auto", Share(2, 1), Share(2, 1))


def worth(candidate: Candidate) -> float:
    """A landscape with one summit, which lies off every axis through the start."""
    gain = {"int8": 40, "auto": 20}.get(candidate.precision, 0)
    return gain - abs(candidate.network.instances - 4) - abs(candidate.preprocessing.threads - 4)


def search(seconds_left: int = 1000) -> tuple[Candidate, list[Candidate]]:
    asked: list[Candidate] = []

    def beats(challenger: Candidate, best: Candidate) -> bool:
        asked.append(challenger)
        return worth(challenger) > worth(best)

    def time_is_left() -> bool:
        return len(asked) < seconds_left

    return descend(START, axes(4, ["auto", "fp32", "int8"]), beats, time_is_left), asked


def test_the_summit_is_found_and_nobody_is_asked_twice() -> None:
    best, asked = search()
    assert (best.precision, best.network.instances, best.preprocessing.threads) == ("int8", 4, 4)
    assert len(asked) == len(set(asked)) and START not in asked


def test_out_of_time_the_best_so_far_is_taken() -> None:
    best, asked = search(seconds_left=2)
    assert len(asked) == 2
    assert best == Candidate("int8", Share(2, 1), Share(2, 1))


def test_where_nothing_is_better_it_stays_as_it_is() -> None:
    assert descend(START, axes(2, ["auto"]), lambda *_: False, lambda: True) == START


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
def test_shares_keep_within_the_machine(cores: int) -> None:
    tried = list(shares(cores))
    assert len(tried) == len(set(tried)) <= 2 * cores.bit_length()
    assert all(share.instances <= cores and share.threads <= cores for share in tried)
    assert Share(1, cores) in tried


@pytest.mark.parametrize(
    ("name", "of", "varied"),
    [
        ("local", {"PRECISION": "auto"}, {"precision", "network"}),  # in one step
        ("local", {"STEPS": "3"}, {"precision", "network", "preprocessing"}),
        ("gpu", {}, {"network", "preprocessing"}),
        ("gpu", {"PREPROCESS": "dali"}, {"network"}),
    ],
)
def test_each_flavour_varies_what_matters_there(
    tmp_path: Path, name: str, of: dict[str, str], varied: set[str]
) -> None:
    settings = Settings(DEFAULTS | {"CORES": "2"} | of)
    stack = flavour.stack(name, settings)
    hardware = hardware_of(stack, settings, pipelines.main(), tmp_path)
    assert hardware.engine is (GPU if name == "gpu" else CPU)
    manifest = SimpleNamespace(transform={"crop": 224}, onnx={"classes": 1000})
    plan = SimpleNamespace(manifest=manifest)
    made: Any = {"auto": None, "fp32": None} if name == "local" else {"fp16": plan}
    found = hardware.axes(made)
    assert found.keys() == varied
    if name == "gpu":
        assert found["network"] == [Share(copies, 1) for copies in (1, 2, 3, 4)]
        start = hardware.start(made)
        assert start == OnGpu("fp16", Share(2, 1), Share(2, 2))  # as its config says
        assert str(start) == "fp16, copies of the network per GPU: 2, preprocessing 2 x 2"
        assert start.settings.keys() == {
            *("NETWORK_INSTANCES", "PREPROCESS_INSTANCES", "PREPROCESS_THREADS")
        }
    else:
        assert found["precision"] == ["auto", "fp32"] and found["network"] == list(shares(2))


def test_a_kind_with_nothing_to_vary_on_a_gpu_says_so(tmp_path: Path) -> None:
    """As a classifier of texts: its number of copies is fixed, and it decodes nothing."""
    recipe = SimpleNamespace(
        model_names=[], network_model=lambda engine: "resnet50_trt", fit=lambda *_: None
    )
    main: Any = SimpleNamespace(name="texts", recipe=recipe)
    settings = Settings(DEFAULTS | {"CORES": "2"})
    hardware = hardware_of(flavour.stack("gpu", settings), settings, main, tmp_path)
    plan: Any = {"fp16": None}
    with pytest.raises(UserError, match="texts has no settings to be tuned on a GPU"):
        hardware.axes(plan)


def test_throughput_wants_a_lead_that_is_no_chance() -> None:
    goal = Goal(None)
    assert goal.concurrencies(2) == [8]
    assert goal.beats(Score(8, 105, 900), Score(8, 100, 100))
    assert not goal.beats(Score(8, 101, 10), Score(8, 100, 100))


def test_a_limit_comes_before_throughput() -> None:
    goal = Goal(50)
    assert goal.concurrencies(2) == [1, 2, 4, 8]
    within, beyond, far_beyond = Score(1, 30, 40), Score(1, 90, 60), Score(1, 90, 90)
    assert goal.beats(within, beyond) and not goal.beats(beyond, within)
    assert goal.beats(beyond, far_beyond)
    assert goal.best([within, Score(2, 50, 49), Score(4, 60, 51)]).throughput == 50
    assert goal.best([far_beyond, beyond]) == beyond


def test_settings_are_changed_where_they_stand() -> None:
    text = (
        "# of mine\nARCH=resnet18\n\n# how many\nNETWORK_INSTANCES=1\n# NETWORK_THREADS=9\nBIND=::1"
    )
    once = dotenv_file.change_values(
        text, {"NETWORK_INSTANCES": "2", "NETWORK_THREADS": "1"}, "make tune: a"
    )
    assert once == (
        "# of mine\nARCH=resnet18\n\n# how many\n# make tune: a\nNETWORK_INSTANCES=2\n"
        "# NETWORK_THREADS=9\nBIND=::1\nNETWORK_THREADS=1\n"
    )
    twice = dotenv_file.change_values(once, {"NETWORK_INSTANCES": "4"}, "make tune: b")
    assert twice == once.replace("tune: a", "tune: b").replace("INSTANCES=2", "INSTANCES=4")


def test_a_later_line_of_the_same_setting_does_not_win() -> None:
    text = "export PRECISION=fp32\nPRECISION = bf16\n"
    assert (
        dotenv_file.change_values(text, {"PRECISION": "int8"}, "why") == "# why\nPRECISION=int8\n"
    )


def test_a_file_is_made_where_there_is_none_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    dotenv_file.change({"PRECISION": "int8"}, "make tune: a", path)
    assert path.read_text() == "# make tune: a\nPRECISION=int8\n"
    path.chmod(0o600)
    dotenv_file.change({"PRECISION": "fp32"}, "make tune: b", path)
    assert path.read_text() == "# make tune: b\nPRECISION=fp32\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [".env"]


def test_measured_is_the_flavour_that_serves_unless_another_is_asked_for() -> None:
    server = State("cpu", "", DEFAULTS)
    assert flavour.serving_or_chosen(Settings(DEFAULTS), server) == ("cpu", "it serves")
    asked = Settings(DEFAULTS).replace_with(FLAVOUR="local")
    assert flavour.serving_or_chosen(asked, server) == ("local", "as FLAVOUR says")


# A server that tells of its model, and one that ends as it starts.
ANSWERS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"input": [{"name": "INPUT_0"}]}')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
FULL = "raise SystemExit('error: Cuda Runtime (out of memory)')"


class Crowded:
    """A stack with memory for two copies of the network."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    @contextmanager
    def temporary(self, repository: Path, log: Path, _: str) -> Iterator[tuple[str, str]]:
        (port,) = free_ports(1)
        program = ANSWERS if int(repository.read_text()) <= 2 else FULL
        command = [sys.executable, "-c", program, str(port)]
        with temporary.running("the server", command, log, lambda: why_not(port)) as pid:
            self.pids.append(pid)
            yield f"127.0.0.1:{port}", "127.0.0.1:1"


def why_not(port: int) -> str | None:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return "nobody listens"
    return None


def test_who_does_not_start_is_passed_over_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "admin.key")
    admin_key.ensure()
    stack: Any = Crowded()
    analyzer: Any = None  # nothing is measured

    def lay_out(candidate: Candidate, target: Path) -> None:
        files.write(target, str(candidate.network.instances))

    start, full = (OnGpu("fp16", Share(copies, 1), Share(2, 1)) for copies in (2, 3))
    folder = tmp_path / "tune"
    with Arena(stack, "pipeline", lay_out, Goal(None), 2, [], analyzer, folder) as arena:
        assert not arena.beats(full, start) and not arena.scores
        assert [each.name for each in folder.iterdir()] == ["0"]  # the current settings' serves on
        (pid,) = stack.pids
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid) and not list(folder.iterdir())
    (line,) = (each for each in capfd.readouterr().out.splitlines() if "passed over" in each)
    assert str(full) in line and "out of memory" in line


def test_who_ends_without_an_error_is_told_with_what_it_last_said(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo loading; echo all is well"]
    with (
        pytest.raises(UserError, match="the server does not start: it last said: all is"),
        temporary.running("the server", command, tmp_path / "log", lambda: "nobody listens"),
    ):
        pass


def test_where_nobody_else_starts_there_is_no_verdict() -> None:
    start = OnGpu("fp16", Share(2, 1), Share(2, 1))
    settings = Settings(DEFAULTS)
    with pytest.raises(UserError, match="no other settings could be served"):
        conclude(settings, Goal(None), start, start, {}, "")
