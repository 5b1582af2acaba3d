"""What is known to harm a server, in the short form that takes four minutes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.torture.command import SHORTER
from benchmark.torture.judging import judge, measure_usual
from benchmark.torture.own_server import Own
from benchmark.torture.subject import Subject
from scripts.recipes import pipelines
from tests.plugin import make_bring
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


@pytest.fixture
def few(
    request: pytest.FixtureRequest, exported: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A server of the main pipeline and those of texts: each process of all is harmed."""
    project = Project.copy(tmp_path_factory.mktemp("few"), FLAVOUR="local")
    project.take(exported)
    try:
        project.made("up")
        bring = make_bring(request, project, tmp_path_factory)
        for each in pipelines.others():
            if each.recipe.asked_about == "TEXT":
                bring(each.name)
        yield project
    finally:
        project.end()


def test_everything_comes_back(few: Project) -> None:
    _torture(few)


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_everything_of_every_pipeline_comes_back(together: Project) -> None:
    _torture(together)


def _torture(project: Project) -> None:
    done = project.make("torture", QUICK="1")
    output = done.stdout + done.stderr
    assert "requests that ended it once" in output and "server: SIGKILL" in output
    if done.returncode:  # a busy machine lets anyone wait, and nothing else may be wrong
        waited = {*re.findall(WAITED, output, re.MULTILINE)}
        assert f"error: {len(waited)} of " in output, output
    project.made("status")  # what serves was left alone


@pytest.mark.rare
@pytest.mark.parametrize("served", ["gpu"], indirect=True)
def test_everything_comes_back_on_a_gpu(served: Project) -> None:
    """`make torture` has no GPU for a server of its own; here what serves is harmed."""
    inside = Path(f"/proc/{served.root()}/root")
    own = Own(inside / "run/triton", inside / "dev/shm")
    subject = Subject(served.root(), served.http, served.grpc)
    rows = [*judge(subject, own, SHORTER, measure_usual(subject), NOT_ON_A_GPU)]
    names = {row.name for row in rows}
    assert {"requests that ended it once", "server: SIGKILL", "a full /dev/shm"} <= names
    assert rows[-1].restored is not None, rows[-1]
    faults = [row for row in rows if row.fault]
    assert all(row.fault.startswith("a bystander waited") for row in faults), faults
    served.made("status")


@pytest.mark.rare
@pytest.mark.parametrize("served", ["gpu"], indirect=True)
def test_what_is_made_for_a_gpu_is_refused(served: Project) -> None:
    (line,) = error_lines(served.make("torture", QUICK="1").stderr)
    assert "made for a GPU; harm the one that serves" in line
