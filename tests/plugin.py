import ctypes
import fcntl
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest
from PIL import Image
from xdist.scheduler import LoadScopeScheduling

from scripts import bootstrap
from scripts.artefacts.drawn.drawings import many
from scripts.base import files
from scripts.settings import arguments, settings
from scripts.stacks.docker_engine import why_not_served
from tests import again, touched
from tests.pipelines import ask_by_command, find_served
from tests.project import ASSETS, ROOT, Project, picture
from tests.stand_ins import rehearse

# usearch has a C++ library of its own inside. Loaded before the system's, it makes PyTorch in the
# same process forget how numbers are written. Only tests have both in one process.
ctypes.CDLL("libstdc++.so.6", ctypes.RTLD_GLOBAL)

# What the caller has set for this project, for Compose or for a make around this one changes no
# result; but for what this machine needs to install anything at all.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "BUNDLE_URL")
OF_OTHERS = ("PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
OF_THE_MACHINE = {"CA_BUNDLE", "TORCH_INDEX", "PYTHON"}
for name in list(os.environ):
    ours = {*settings.ALL, *arguments.ALL, *OF_MAKE, *OF_OTHERS} - OF_THE_MACHINE
    if name in ours or name.startswith(("COMPOSE_", "AWS_")):
        del os.environ[name]
sys.dont_write_bytecode = False

# Folders get the modes that tests give them; what a umask hides, they say themselves.
os.umask(0o022)

# PyTorch's threads wait by spinning, which takes the cores from the other worker and the servers.
os.environ["OMP_NUM_THREADS"] = "1"

# A program that a shell starts in the background ignores Ctrl-C, and so does all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What costs most to make is made once: the files of tests that share it are run by one worker, and
# each other file by one. A server of processes costs little: there are two, so that two workers
# have what to do.
ALONE = "served alone"
TOGETHER = {
    "test_serving.py": "served",
    "test_eval.py": "served",
    "test_containers.py": ALONE,
    "test_bench.py": ALONE,
    "test_guard.py": ALONE,
    "test_logs.py": ALONE,
    "test_tables.py": ALONE,
    "test_tensorflow.py": ALONE,
    "test_keeper.py": ALONE,
    "test_torture.py": ALONE,
    "test_soak.py": ALONE,
    "test_add_model.py": ALONE,
    "test_own_models.py": ALONE,
    "test_callables.py": ALONE,
    "test_similar.py": ALONE,
    "test_places.py": "served",
    "test_sentiment.py": "served",
    "test_detection.py": "served",
    "test_detr.py": ALONE,
    "test_sounds.py": "served",
    "test_segmentation.py": "served",
    "test_together.py": "served",
    "test_cascade.py": "served",
    "test_kinds.py": "served",
    "test_page_served.py": ALONE,
    "test_monitoring.py": ALONE,
    "test_video.py": ALONE,
    "test_lifecycle.py": "exported",
    "test_beyond_this_machine.py": "exported",
    "test_comparison.py": "exported",
    "test_tune.py": "exported",
    "test_quantise.py": "exported",
    "test_rollout.py": "versions",
    "test_s3.py": "versions",
    # Their nodes have the same addresses on this machine; Kubernetes' rollouts have them, too.
    "test_nodes.py": "versions",
    "test_swarm.py": "nodes of a swarm",
    "test_swarm_own.py": "nodes of a swarm",
    "test_swarm_updates.py": "nodes of a swarm",
}

Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)

# How it is said that this Python can start no server: PyTriton, which has one, is not built for it.
NO_SERVER = re.compile(
    "without Docker, the server needs Python|no tritonserver in |No module named 'pytriton'"
)

# Of what a run shows while it goes on.
SHOWN_S = 3
REASON_CHARACTERS = 1000

# The workers end at the same time if what takes longest begins first; and what one makes for all,
# the others are not to wait for.
LONGEST_FIRST = (
    *("served", ALONE, "test_gpu_rehearsal.py"),
    *("versions", "test_compose.py", "tests/pytorch/test_drawn.py", "exported"),
    *("served by containers: cpu", "served by containers: gpu"),
)


def group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    name = file.rpartition("/")[2]
    name = TOGETHER.get(name, name) if "/end_to_end/" in file else file
    if "on_a_gpu" in nodeid.partition("[")[2]:
        return "the door of a GPU"
    served = name in ("served", ALONE)
    if served and (found := re.search(r"[\[-](cpu|gpu)[-\]]", nodeid)):
        return f"served by containers: {found[1]}"
    return name


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return skip_without_server((yield), str(collector.path), 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    path, line, _ = item.location
    return skip_without_server((yield), path, line or 0)


def skip_without_server(report: Report, path: str, line: int) -> Report:
    can_serve = sys.version_info[:2] in bootstrap.SERVES
    if not can_serve and report.failed and NO_SERVER.search(report.longreprtext):
        reason = "Skipped: without Docker, the server needs Python 3.11 or 3.12"
        report.outcome, report.longrepr = "skipped", (path, line, reason)
    return report


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if touched.WHERE_TOUCHED.match(item.nodeid):
            item.add_marker(pytest.mark.long)
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(group(item.nodeid), len(places)))


class Progress:
    """In the place of dots: a line for each file when it begins, each failure, and all that takes
    long."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._begun: set[str] = set()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (report.outcome, "", "") if report.when == "call" or not report.passed else None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if file not in self._begun:
            self._begun.add(file)
            self._terminal.write_line(file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.duration > SHOWN_S:
            phase = "" if report.when == "call" else f" ({report.when})"
            outcome = "FAILED" if report.failed else f"{report.duration:.0f} s"
            self._terminal.write_line(f"  {outcome:>6}  {report.nodeid}{phase}")
            if crash := getattr(report.longrepr, "reprcrash", None) if report.failed else None:
                self._terminal.write_line(" " * 10 + crash.message[:REASON_CHARACTERS])


@pytest.hookimpl(trylast=True)  # the terminal is another plugin of this hook
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal and config.get_verbosity() <= 0:
        config.pluginmanager.register(Progress(terminal))
    if again.wanted(config):
        config.pluginmanager.register(again.Again())


class Together(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together:
    return Together(config, log)


@pytest.fixture(scope="session")
def assets() -> Path:
    if ASSETS is None:
        pytest.skip("no real weights and photos (TEST_ASSETS is not set)")
    return ASSETS


@pytest.fixture
def umask_077() -> Iterator[None]:
    """Of a user whose files are read by nobody else, also not in a container."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def require_docker() -> None:
    if obstacle := why_not_served():
        pytest.skip(f"no containers here: {obstacle}")


# What holds however a server was started is asked of the one by processes; `make test-rare` asks
# those by containers too, and of these the one for a GPU in its rehearsal.
ON_A_GPU = pytest.param("gpu", marks=pytest.mark.rare)
FLAVOURS = ["local", pytest.param("cpu", marks=pytest.mark.rare), ON_A_GPU]

# What may differ between processes and containers is asked of both in `make test`.
everywhere = pytest.mark.parametrize("served", ["local", "cpu", ON_A_GPU], indirect=True)


@pytest.fixture(scope="session", params=FLAVOURS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A server brought up by `make up`: by processes, of what was exported for all, and by
    containers from nothing."""
    folder = tmp_path_factory.mktemp(f"served-{request.param}")
    if request.param != "local":
        require_docker()
    if request.param == "gpu":
        with rehearse(folder) as project:
            project.made("up")
            yield project
        return
    project = Project.copy(folder, FLAVOUR=request.param)
    if request.param == "local":
        project.take(request.getfixturevalue("exported"))
    try:
        project.made("up")
        yield project
    finally:
        if request.param == "local":
            project.kill()  # quicker than to let it stop in order
        project.make("clean")  # its images too


@contextmanager
def once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A path for what is made by the first worker that wants it, while another one waits; or by an
    earlier run of the tests on the same code, if TEST_MADE names a folder for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = Path(os.environ.get("TEST_MADE", shared)) / name
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made


# Without trained weights, half precision moves their answers too far: docs/limits.md.
UNFAITHFUL_IN_HALF = {"detection", "segmentation"}

Bring: TypeAlias = Callable[[str], Project]


@pytest.fixture(scope="session")
def bring(
    request: pytest.FixtureRequest, served: Project, tmp_path_factory: pytest.TempPathFactory
) -> Bring:
    return make_bring(request, served, tmp_path_factory)


def make_bring(
    request: pytest.FixtureRequest, server: Project, tmp_path_factory: pytest.TempPathFactory
) -> Bring:
    """Brings another pipeline to the same server, by its own command. What it exports is the same
    for each flavour on a CPU, and is made once."""
    photo = server.path / "noise.jpg"
    photo.write_bytes(picture())

    brought: set[str] = set()
    is_on_a_gpu = server.settings["FLAVOUR"] == "gpu"
    plans = "-gpu" if is_on_a_gpu else ""

    def bring(name: str) -> Project:
        if name in brought:
            return server
        if is_on_a_gpu and name in UNFAITHFUL_IN_HALF:
            pytest.skip(f"an untrained network for {name} is refused in half precision")
        server.settings |= find_served()[name].settings(request)
        made, began = server.path / "build" / "versions" / name, server.server_began()
        with once(tmp_path_factory, f"with-{name}{plans}") as kept:
            if kept.exists():
                files.link_tree(kept, made)
            ask_by_command(server, name, photo)
            if not kept.exists():
                with files.whole_folder(kept) as draft:
                    files.link_tree(made, draft)
        assert server.server_began() == began
        brought.add(name)
        return server

    return bring


@pytest.fixture(scope="session")
def together(served: Project, bring: Bring) -> Project:
    """The same server with every pipeline in it that can be served there."""
    left_out = UNFAITHFUL_IN_HALF if served.settings["FLAVOUR"] == "gpu" else set()
    for name in find_served():
        if name not in left_out:
            bring(name)
    return served


@pytest.fixture(scope="session")
def listener() -> Path:
    """The weights of SOUNDS=drawn."""
    return ROOT / "kinds" / "sound" / "weights.safetensors"


@pytest.fixture(scope="session")
def trained() -> Path:
    """The weights of ARCH=drawn."""
    return ROOT / "scripts" / "artefacts" / "drawn" / "weights.safetensors"


@pytest.fixture(scope="session")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that such a network knows: for SAMPLES, CALIBRATION or a stream of requests."""
    folder = tmp_path_factory.mktemp("drawings")
    for number, pixels in enumerate(many(64, seed=4711)[0]):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What export and engine made, for tests that are not about making it."""
    with once(tmp_path_factory, "exported") as made:
        if not made.exists():
            project = Project.copy(tmp_path_factory.mktemp("exported-by"), FLAVOUR="local")
            try:
                project.made("up")
            finally:
                project.end()
            with files.whole_folder(made) as draft:
                for name in ("versions", "cache", "live"):
                    files.link_tree(project.path / "build" / name, draft / name)
    return made
