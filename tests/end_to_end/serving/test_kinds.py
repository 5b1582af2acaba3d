"""Every kind of pipeline is the same to every command: those of the project, and one that somebody
adds in one module and one recipe."""

import http.client
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from PIL import Image

from bundle_serving import infer
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from scripts.recipes import schema
from scripts.recipes.recipe import Recipe
from tests.pipelines import find_served
from tests.plugin import Bring
from tests.project import OWN_KIND, Project, picture
from tests.screens import page
from tests.screens.chromium import browser
from tests.tables import trained, without_a_network
from tests.watching import begun, watched

locally = pytest.mark.parametrize("served", ["local"], indirect=True)


@pytest.mark.long
@pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}")
@locally
def test_a_kind_is_one_folder(served: Project, tmp_path: Path) -> None:
    assert len(OWN_KIND) == 9
    needed = [text for name, text in OWN_KIND.items() if not name.endswith(".js")]
    assert len("".join(needed).splitlines()) < 80
    own = served.path / "own"
    served.add_own_kind()
    white = served.path / "build" / "white.png"
    Image.new("RGB", (300, 300), "white").save(white)
    model = {"MODEL": "sums"}
    try:
        assert "up: sums" in served.made("up", **model)
        assert served.made("classify", IMG=str(white), **model).endswith("38384640.0\n")
        assert served.made("sum", IMG=str(white), SUM_UNIT="255").endswith("150528.0\n")
        with browser(tmp_path) as tab:
            page.opened(tab, served.settings["HTTP_PORT"], "sums")
            tab.drop(white)
            page.until_answered(tab)
            assert tab.text(".labels") == "All in all 38384640"
        assert "report: " in served.made("bench", QUICK="1", IMAGES=str(white), **model)
        program = own / "kinds" / "sum" / "model_repository" / "adder" / "1" / "model.py"
        program.write_text(program.read_text() + "# the same, otherwise\n")
        assert "published: sums version 2" in served.made("publish", **model)
        output = served.made("rollout", WATCH_SECONDS="1", MAX_P99_RATIO="20", **model)
        assert "sums version 2 is live; 0 of " in output
        assert "live (rollout)" in served.made("history", **model)
        assert "removed: sums" in served.made("remove-model", NAME="sums")
        assert not list(own.rglob("sums*")) and not list(own.rglob("adder"))
        assert "yours: none" in served.make("remove-model").stderr
    finally:
        shutil.rmtree(own / "kinds")


PROGRAMS = {
    "sentiment": "sentiment_postprocessing",
    "places": "postprocess",
    "cascade": "cascade_choice",
    "detection": "detection_postprocessing",
    "sounds": "sounds_preprocessing",
    "segmentation": "segmentation_postprocessing",
}

SOURCES = {
    "IMG": picture(),
    "TEXT": b"I love this place!",
    "IN": b"[0.5, -1, 1.5]",
    "INPUTS": b'{"text": "What a day!"}',
}

QUICK = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}
# Both ways while processes serve; the others are rolled back in a container, below.
LIGHT = ("sentiment", "cascade")


@pytest.mark.rare
@locally
@pytest.mark.parametrize("name", LIGHT)
def test_rollouts_lose_no_request(name: str, served: Project, bring: Bring) -> None:
    project = bring(name)
    recipe = recipe_of(project, name)
    with changed(program(project, PROGRAMS[name])), nobody_waits_in_vain(project, recipe):
        publish_and_roll_out(project, name)
        roll_back(project, name)


@pytest.mark.rare
@pytest.mark.parametrize("served", ["cpu"], indirect=True)
def test_all_are_asked_at_once_while_each_is_rolled_out(together: Project, users_own: Path) -> None:
    """In a container, with the memory that it has by default."""
    together.made("up", MODEL="video")
    changes = {name: program(together, model) for name, model in PROGRAMS.items()}
    changes |= {"mine": users_own / "mine.py", "video": program(together, "video_smoothing")}
    began, restored = together.server_began(), sum(measured(together, "bundle_restored_total"))
    with ExitStack() as asked:
        for name in ("resnet50", *PROGRAMS, "mine", "flowers"):
            recipe = recipe_of(together, name)
            asked.enter_context(nobody_waits_in_vain(together, recipe, clients=1))
        streams = [asked.enter_context(watched(together, each)) for each in (False, True)]
        trained(users_own / "flowers.json", 1)
        publish_and_roll_out(without_a_network(together), "flowers", ANYWAY="1")
        for name, path in changes.items():
            assert [begun(found) for found in streams] == [1, 1]
            with changed(path):
                publish_and_roll_out(together, name)
                if name in PROGRAMS and name not in LIGHT:
                    roll_back(together, name)
            (used,) = measured(together, "bundle_memory_used_bytes")
            (limit,) = measured(together, "bundle_memory_limit_bytes")
            assert used < limit < psutil.virtual_memory().total
    assert all(begun(found) > 1 for found in streams)
    assert together.server_began() == began
    assert sum(measured(together, "bundle_restored_total")) == restored


@pytest.fixture
def users_own(together: Project, tmp_path: Path) -> Iterator[Path]:
    """A folder with a table's model and a function, both served."""
    function, table = tmp_path / "mine.py", tmp_path / "flowers.json"
    trained(table, 0)
    together.made("add-callable", NEW=str(function))
    together.made("add-callable", FILE=str(function))
    without_a_network(together).made("add-model", NAME="flowers", FROM=str(table))
    yield tmp_path
    for name in ("mine", "flowers"):
        together.made("remove-model", NAME=name)


def find_source(asked_about: str) -> bytes:
    """Of what is in no list here, a kind's own example."""
    examples = (each.question(Path())[1] for each in find_served().values())
    own = (Path(each[asked_about]) for each in examples if asked_about in each)
    return SOURCES.get(asked_about) or next(own).read_bytes()


def recipe_of(project: Project, name: str) -> Recipe:
    found = [*project.path.glob(f"*/{name}.yaml"), *project.path.glob(f"*/*/{name}.yaml")]
    return schema.load(found[0])


def program(project: Project, model: str) -> Path:
    (found,) = project.path.glob(f"**/model_repository/{model}/1/model.py")
    return found


@contextmanager
def changed(path: Path) -> Iterator[None]:
    """A program, whose next version differs from the live one."""
    kept = path.read_text()
    path.write_text(kept + "# the same, otherwise\n")
    try:
        yield
    finally:
        path.write_text(kept)


def publish_and_roll_out(project: Project, name: str, **settings: str) -> None:
    assert f"published: {name} version" in project.made("publish", MODEL=name)
    assert "; 0 of " in project.made("rollout", MODEL=name, **QUICK, **settings)


def roll_back(project: Project, name: str) -> None:
    assert "; 0 of " in project.made("rollback", MODEL=name, **QUICK)
    assert "rolled back to version" in project.made("history", MODEL=name)


def measured(project: Project, metric: str) -> list[float]:
    url = f"http://localhost:{project.settings['METRICS_PORT']}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    named = (line for line in lines if line.partition("{")[0].partition(" ")[0] == metric)
    return [float(line.rpartition(" ")[2]) for line in named]


@contextmanager
def nobody_waits_in_vain(project: Project, recipe: Recipe, clients: int = 2) -> Iterator[None]:
    source = find_source(recipe.asked_about)
    stop, answers, faults = threading.Event(), [], []

    def ask() -> None:
        connection = http.client.HTTPConnection(project.http, timeout=60)
        while not stop.wait(0.5):
            try:
                answers.append(infer.ask(connection, recipe.ensemble, recipe.question(source)))
            except (OSError, ValueError, http.client.HTTPException) as fault:
                faults.append(fault)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert answers and not faults
