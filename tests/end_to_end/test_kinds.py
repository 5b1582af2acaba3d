"""Every kind of pipeline is the same to every command: those of the project, and one that somebody
adds in one module and one recipe."""

from __future__ import annotations

import http.client
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest
from PIL import Image

from bundle_serving import infer
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from scripts.recipes import schema
from scripts.recipes.recipe import Recipe
from tests.project import ROOT, Project, picture
from tests.wav_files import BELL

SUM = '''"""Image files -> the sum of their pixels."""

from typing import Literal

import numpy as np
from bundle_serving.address import Address
from bundle_serving.health import PICTURE
from scripts.recipes import pbtxt
from scripts.recipes.pbtxt import NEWEST_VERSION, Step, Tensor
from scripts.recipes.recipe import Recipe
from bundle_serving import infer
from bundle_serving.agreement import Agreement

PIXELS, TOTAL = Tensor("PIXELS", "UINT8", [3, 224, 224]), Tensor("SUM", "FP32", [1])
PROGRAM = """from bundle_serving.triton import answer, array

class TritonPythonModel:
    def execute(self, requests):
        return [answer(total, request, output="SUM") for request in requests]

def total(request):
    return array(request, "PIXELS").sum(axis=(1, 2, 3)).astype("float32")[:, None]
"""

class Sum(Recipe):
    kind: Literal["sum"]
    example = "sum.yaml"

    def files(self):
        steps = pbtxt.steps(
            Step("preprocessing", {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
            Step("adder", {"PIXELS": "pixels"}, {"SUM": "SUM"}),
        )
        image, tensors = pbtxt.inputs(Tensor("INPUT", "UINT8", [-1])), pbtxt.outputs(TOTAL)
        runs, of = pbtxt.backend("python"), pbtxt.platform("ensemble")
        return {
            "adder/1/model.py": PROGRAM,
            "adder/config.pbtxt": pbtxt.config(
                "Adds.", "adder", runs, 8, pbtxt.inputs(PIXELS), tensors, NEWEST_VERSION
            ),
            f"{self.ensemble}/config.pbtxt": pbtxt.config(
                "Sums.", self.ensemble, of, 8, image, tensors, NEWEST_VERSION, steps
            ),
        }

    def programs(self, layout): return ["adder"]
    def borrowed(self, engine): return ["preprocessing"]
    def question(self, source): return {"INPUT": np.frombuffer(source, np.uint8)[None]}
    def golden(self, made): return [self.question(PICTURE)]
    def gist(self, answer): return float(answer["SUM"][0, 0])
    def judge(self, made, answers): return Agreement(1, int(self.gist(answers[0]) == 38384640), 0)

    def ask(self, server, asked, environment):
        connection = Address.of(server.known["url"]).connection(60)
        for question in (self.question(open(name, "rb").read()) for name in asked):
            print(self.gist(infer.ask(connection, self.ensemble, question)))
        return 0
'''
RECIPE = "kind: sum\nmodels: {ensemble: sums}\n"


locally = pytest.mark.parametrize("served", ["local"], indirect=True)


@pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}")
@locally
def test_a_kind_is_one_module_and_one_recipe(served: Project) -> None:
    assert len((SUM + RECIPE).splitlines()) < 60
    own = served.path / "own"
    for name, text in (("kinds/sum.py", SUM), ("recipes/sums.yaml", RECIPE)):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    white = served.path / "build" / "white.png"
    Image.new("RGB", (300, 300), "white").save(white)
    model = {"MODEL": "sums"}
    try:
        assert "up: sums" in served.made("up", **model)
        assert served.made("classify", IMG=str(white), **model).endswith("38384640.0\n")
        assert "report: " in served.made("bench", QUICK="1", IMAGES=str(white), **model)
        program = own / "model_repository" / "adder" / "1" / "model.py"
        program.write_text(program.read_text() + "# the same, otherwise\n")
        assert "published: sums version 2" in served.made("publish", **model)
        output = served.made("rollout", WATCH_SECONDS="1", MAX_P99_RATIO="20", **model)
        assert "sums version 2 is live; 0 of " in output
        assert "live (rollout)" in served.made("history", **model)
        assert "removed: sums" in served.made("remove-model", NAME="sums")
        assert not list(own.glob("*/sums*")) and not list(own.glob("*/adder"))
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


QUICK = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}


@pytest.mark.long
@locally
@pytest.mark.parametrize("name", PROGRAMS)
def test_rollouts_lose_no_request(together: Project, name: str) -> None:
    with published(together, name), nobody_waits_in_vain(together, recipe_of(name)):
        assert "; 0 of " in together.made("rollout", MODEL=name, **QUICK)
        assert "; 0 of " in together.made("rollback", MODEL=name, **QUICK)
    assert "rolled back to version" in together.made("history", MODEL=name)


@pytest.mark.long
@pytest.mark.parametrize("served", ["cpu"], indirect=True)
def test_all_are_asked_at_once_while_each_is_rolled_out(together: Project) -> None:
    """In a container, with the memory that it has by default."""
    began, restored = together.server_began(), sum(measured(together, "bundle_restored_total"))
    with ExitStack() as asked:
        for name in ("resnet50", *PROGRAMS):
            asked.enter_context(nobody_waits_in_vain(together, recipe_of(name)))
        for name in PROGRAMS:
            with published(together, name):
                assert "; 0 of " in together.made("rollout", MODEL=name, **QUICK)
            (used,) = measured(together, "bundle_memory_used_bytes")
            (limit,) = measured(together, "bundle_memory_limit_bytes")
            assert used < limit < psutil.virtual_memory().total
    assert together.server_began() == began
    assert sum(measured(together, "bundle_restored_total")) == restored


def recipe_of(name: str) -> Recipe:
    return schema.load(ROOT / "recipes" / f"{name}.yaml")


@contextmanager
def published(project: Project, name: str) -> Iterator[None]:
    """A version whose program differs from the live one's."""
    program = project.path / "model_repository" / PROGRAMS[name] / "1" / "model.py"
    kept = program.read_text()
    program.write_text(kept + "# the same, otherwise\n")
    try:
        assert f"published: {name} version" in project.made("publish", MODEL=name)
        yield
    finally:
        program.write_text(kept)


def measured(project: Project, metric: str) -> list[float]:
    url = f"http://localhost:{project.settings['METRICS_PORT']}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    named = (line for line in lines if line.partition("{")[0].partition(" ")[0] == metric)
    return [float(line.rpartition(" ")[2]) for line in named]


@contextmanager
def nobody_waits_in_vain(project: Project, recipe: Recipe) -> Iterator[None]:
    sources = {"IMG": picture(), "TEXT": b"I love this place!", "SOUND": BELL.read_bytes()}
    source = sources[recipe.asked_about]
    stop, answers, faults = threading.Event(), [], []

    def ask() -> None:
        connection = http.client.HTTPConnection(project.http, timeout=60)
        while not stop.wait(0.3):
            try:
                answers.append(infer.ask(connection, recipe.ensemble, recipe.question(source)))
            except (OSError, ValueError, http.client.HTTPException) as fault:
                faults.append(fault)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert answers and not faults
