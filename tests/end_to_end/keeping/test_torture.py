"""What is known to harm a server, in its short form."""

import re
from collections.abc import Container
from pathlib import Path

import pytest

from benchmark.torture.command import SHORTER
from benchmark.torture.judging import Row, judge, measure_usual
from benchmark.torture.own_server import Own
from benchmark.torture.subject import PARTS, Subject
from benchmark.torture.trials import trials
from tests.project import Project, error_lines

# For some of many large pictures, too long.
WAITED = r"^- .*: (?:a bystander waited|\d+ of \d+ pictures of 49 megapixels were answered$)"
PLAN = "a plan has no processes: it computes in the server itself"
# What is not done to a server for a GPU, which is in a container, and why.
NOT_ON_A_GPU = {
    "resnet50_trt: SIGKILL": PLAN,
    "resnet50_trt: SIGSTOP": PLAN,
    "the keeper after Envoy: SIGKILL": "another container holds the ports, not the keeper",
    "a full disk": "what it writes lies in its memory, which would be full first",
    "another user's locks": "they are files of the checkout, whatever is served",
    "the guard: SIGKILL": "the container ends with it, and Docker starts it anew",
}


# What is done each time, to a server that other tests use too.
OFTEN = {
    "requests that ended it once",
    "messages that fill or cut",
    "mutated requests over HTTP",
    "mutated messages over gRPC",
    "clients that hang up",
    *(f"{part}: SIGKILL" for part in PARTS),
    "resnet50_onnx: SIGKILL",
    "door: SIGSTOP",
}


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_what_is_done_most_is_undone(served: Project) -> None:
    subject = Subject(served.root(), served.http, served.grpc)
    every = {trial.name for trial in trials(sorted(subject.expected_processes()), {}, None, 1)}
    assert not OFTEN - every
    assert {row.name for row in harm_it(served, subject, None, every - OFTEN)} == OFTEN


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_everything_comes_back(together: Project) -> None:
    done = together.make("torture", QUICK="1")
    output = done.stdout + done.stderr
    assert "requests that ended it once" in output and "server: SIGKILL" in output
    if done.returncode:  # a busy machine lets anyone wait, and nothing else may be wrong
        waited = {*re.findall(WAITED, output, re.MULTILINE)}
        assert f"error: {len(waited)} of " in output, output
    together.made("status")  # what serves was left alone


@pytest.mark.rare
@pytest.mark.parametrize("served", ["gpu"], indirect=True)
def test_everything_comes_back_on_a_gpu(served: Project) -> None:
    """`make torture` has no GPU for a server of its own; here what serves is harmed."""
    inside = Path(f"/proc/{served.root()}/root")
    own = Own(inside / "run/triton", inside / "dev/shm")
    subject = Subject(served.root(), served.http, served.grpc)
    names = {row.name for row in harm_it(served, subject, own, NOT_ON_A_GPU)}
    assert {"requests that ended it once", "server: SIGKILL", "a full /dev/shm"} <= names


def harm_it(
    project: Project, subject: Subject, own: Own | None, left_out: Container[str]
) -> list[Row]:
    rows = [*judge(subject, own, SHORTER, measure_usual(subject), left_out)]
    assert rows[-1].restored is not None, rows[-1]
    faults = [row for row in rows if row.fault]
    # A busy machine lets anyone wait.
    assert all(row.fault.startswith("a bystander waited") for row in faults), faults
    project.made("status")
    return rows


@pytest.mark.rare
@pytest.mark.parametrize("served", ["gpu"], indirect=True)
def test_what_is_made_for_a_gpu_is_refused(served: Project) -> None:
    (line,) = error_lines(served.make("torture", QUICK="1").stderr)
    assert "made for a GPU; harm the one that serves" in line
