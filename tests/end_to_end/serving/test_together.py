"""Every pipeline on one server, by processes and by containers: all at the same time, all as plain
PyTorch answers, and all again after a restart."""

import asyncio
import re
import shutil
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from bundle_keeper.asking import Triton
from bundle_serving import health, infer, own_requests, step_reports
from bundle_serving.address import Address
from bundle_serving.agreement import Bound
from bundle_serving.process import sockets
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from bundle_serving.protocol import golden
from scripts.artefacts.workspace import Workspace
from scripts.recipes import pipelines
from scripts.steps import engine, gate
from tests.pipelines import ask_by_command, find_served, not_ready, pictures_by_pytorch
from tests.plugin import Bring
from tests.project import Project, picture

# Of each pipeline.
LOOKS = 30

# The main pipeline always, and each other with its kind.
KINDS = [pytest.param(name, marks=pytest.mark.rare) for name in find_served()]
PHOTOS = ("mug.jpg", "car.jpg", "vulture.jpeg")


def ask(http: str, model: str, file: bytes, *outputs: str) -> list[Any]:
    client = tritonclient.http.InferenceServerClient(http)
    try:
        data = np.frombuffer(file, np.uint8)[None]
        tensor = tritonclient.http.InferInput("INPUT", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        answer = client.infer(model, [tensor])
        return [answer.as_numpy(name)[0] for name in outputs]
    finally:
        client.close()


@pytest.mark.parametrize("name", ["", *KINDS])
def test_each_pipeline_proves_itself(
    served: Project, bring: Bring, name: str, tmp_path: Path
) -> None:
    """As on the nodes of a swarm, whatever its answers are."""
    if name:
        bring(name)
    at, recipe = Address.parse(served.http), pipelines.find_pipeline(name).recipe
    model, made = recipe.ensemble, Workspace(served.path / "build" / "versions" / name / "1")
    questions = recipe.golden(made)
    connection = at.connection(timeout=60)
    answers = [infer.ask(connection, model, each) for each in questions]
    connection.close()
    golden.save_proof(tmp_path / "right.npz", questions, answers, Bound(0.05))
    assert golden.refute(at, model, tmp_path / "right.npz") is None
    others = [{name: otherwise(tensor) for name, tensor in each.items()} for each in answers]
    golden.save_proof(tmp_path / "wrong.npz", questions, others, Bound(0.05))
    assert "otherwise" in (golden.refute(at, model, tmp_path / "wrong.npz") or "")


def otherwise(tensor: NDArray[Any]) -> NDArray[Any]:
    return np.char.add(b"9", tensor) if tensor.dtype.kind == "S" else tensor + 1


@pytest.mark.parametrize("name", KINDS)
def test_each_pipeline_tells_where_the_time_went(served: Project, bring: Bring, name: str) -> None:
    """Whatever it is asked about; a plan has no span."""
    _, asked = find_served()[name].question(bring(name).path / "noise.jpg")
    out = served.made("trace", **asked | {"MODEL": name})
    steps, is_on_a_gpu = re.findall(r"^step +(\w+)", out, re.MULTILINE), "has no span" in out
    assert len(steps) >= 2 and is_on_a_gpu == (served.settings["FLAVOUR"] == "gpu")
    assert "door    receiving the request" in out


# What the door counts of requests.
OF_REQUESTS = re.compile(r"^bundle_(?:request|refused|step|cache|picture|answer)_.*$", re.MULTILINE)


def counted(project: Project) -> list[str]:
    address = f"http://127.0.0.1:{project.settings['METRICS_PORT']}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return OF_REQUESTS.findall(answer.read().decode())


def answered(project: Project) -> list[str]:
    """The lines of the table that `make status` ends with."""
    return re.findall(r"^ ?\w+(?:, .*)? +\d+ +\d+ +\d+ .*$", project.made("status"), re.MULTILINE)


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_hours_in_which_only_the_keeper_asks_count_nothing(together: Project) -> None:
    """As often as it would in hours; and whoever else looks whether the server is well."""
    own_id = own_requests.id_of(together.admin_key)
    at = Address.parse(together.http)
    others = map(pipelines.find_pipeline, find_served())
    ensembles = [PIPELINE, *(each.ensemble for each in others)]

    async def look() -> None:
        keepers = Triton(sockets.folder(together.path / "build" / "run"), own_id)
        for ensemble in ensembles:
            for _ in range(LOOKS):
                assert await keepers.ask(ensemble, 60) is None, ensemble

    time.sleep(2 * step_reports.LATEST_S)  # so long a step may keep what it reports
    before = counted(together), answered(together)
    asyncio.run(look())
    for ensemble in ensembles:
        assert health.reason_not_to_trust(replace(at, own_id=own_id), ensemble) is None
    time.sleep(2 * step_reports.LATEST_S)
    assert (counted(together), answered(together)) == before
    assert before[1] and any(line.startswith("bundle_answer_") for line in before[0])


@pytest.mark.rare
def test_all_are_ready_and_answer_at_once(together: Project) -> None:
    """What a pipeline was made with once stays, without naming it again."""
    own = ("SENTIMENT", "PLACES", "CASCADE", "DETECTION", "SEGMENTATION", "SOUNDS")
    unnamed = dict.fromkeys(own, "")
    assert not_ready(together) == set()
    photo = together.path / "noise.jpg"
    began = together.server_began()
    for command, asked in (
        ("classify", {"IMG": str(photo)}),
        ("classify", {"IMG": str(photo), "MODEL": "places"}),
        ("classify", {"IMG": str(photo), "MODEL": "cascade"}),
        ("detect", {"IMG": str(photo)}),
        find_served()["sounds"].question(Path()),
        ("segment", {"IMG": str(photo)}),
        ("sentiment", {"TEXT": "I hate this place!"}),
    ):
        if together.settings["FLAVOUR"] == "gpu" and command in ("detect", "segment"):
            continue  # their untrained networks are refused in half precision
        again = together.make(command, **asked, **unnamed)
        assert again.returncode == 0 and again.stderr == "", again.stderr
    assert "negative  " in again.stdout
    assert together.server_began() == began
    assert (
        "MODEL=smells is not a pipeline"
        in together.make("classify", IMG=str(photo), MODEL="smells").stderr
    )


@pytest.mark.rare
def test_many_ask_the_cascade_at_once(together: Project, assets: Path) -> None:
    files = [(assets / "images" / "mug.jpg").read_bytes(), picture()] * 6
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(
                lambda file: ask(together.http, "cascade", file, "OUTPUT", "ANSWERED_BY"), files
            )
        )
    (large,) = ask(together.http, PIPELINE, files[1], "OUTPUT")
    ending = b"trt" if together.settings["FLAVOUR"] == "gpu" else b"onnx"
    for probabilities, (network,) in answers[0::2]:
        assert network == b"mobilenet_v2_" + ending and probabilities.max() >= 0.5
    for probabilities, (network,) in answers[1::2]:
        assert network == b"resnet50_" + ending
        assert np.allclose(probabilities, large, atol=0.02)  # in whatever batch, by bfloat16
    with pytest.raises(InferenceServerException, match="not a readable picture") as refused:
        ask(together.http, "cascade", b"no picture at all")
    assert refused.value.status() == "400"


@dataclass(frozen=True)
class Compared:
    """Photo by photo against PyTorch in float32 with torchvision's own transforms."""

    http: str
    photos: list[Path]
    expected: list[NDArray[np.float32]]

    def difference(self, model: str = PIPELINE) -> float:
        """Of any probability; the likeliest label must be the same."""
        found = [ask(self.http, model, each.read_bytes(), "OUTPUT")[0] for each in self.photos]
        assert [f.argmax() for f in found] == [e.argmax() for e in self.expected]
        return max(float(np.abs(f - e).max()) for f, e in zip(found, self.expected, strict=True))


@pytest.fixture
def compared(together: Project, assets: Path) -> Compared:
    photos = [assets / "images" / name for name in PHOTOS]
    weights = assets / "weights" / "mobilenet_v2_imagenet.safetensors"
    return Compared(together.http, photos, pictures_by_pytorch(weights, photos))


@pytest.mark.rare
def test_pictures_are_answered_as_by_pytorch(compared: Compared) -> None:
    """In the precision that was proved on this machine, and decoded as by default."""
    bound = gate.for_the_ensemble(engine.BOUNDS["bf16"], len(PHOTOS)).difference
    assert compared.difference() <= bound and compared.difference("cascade") <= bound


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local", "cpu"], indirect=True)  # which PRECISION is for
def test_a_restart_brings_all_back(together: Project, compared: Compared) -> None:
    photos, difference = compared.photos, compared.difference
    try:
        together.made("up", PRECISION="fp32", DECODE="full")
        assert not_ready(together) == set()
        # Its small network stays in what its own version was made in.
        together.made("up", MODEL="cascade", PRECISION="fp32")
        assert difference() <= 0.01 and difference("cascade") <= 0.01

        # One is unloaded, and does not come back; of one the files are gone, which are laid out.
        members = ("sentiment_onnx", "sentiment_postprocessing", "sentiment_preprocessing")
        output = together.made("unload", TRITON_MODEL="sentiment_ensemble")
        assert f"unloaded: {', '.join(('sentiment_ensemble', *members))}" in output
        models = together.made("models")
        for member in members:
            assert re.search(rf"^{member} +\d+ +UNAVAILABLE", models, re.MULTILINE), models
        assert difference("cascade") <= 0.01  # it takes members of its own and of others
        together.made("down")
        shutil.rmtree(together.path / "build" / "live" / "classification_places" / "1")
        output = together.made("up", PRECISION="fp32", DECODE="reduced")
        assert "could not be loaded again" not in output
        assert not_ready(together) == {"sentiment_ensemble", *members}
        assert difference() <= 0.05 and difference("cascade") <= 0.05
        answers = {name: ask_by_command(together, name, photos[0]) for name in ("", *find_served())}
        assert answers[""]["labels"][0]["label"] == "coffee mug"
        assert answers["cascade"]["labels"][0]["label"] == "coffee mug"
        assert not_ready(together) == set()
    finally:
        together.made("up", PRECISION="auto", DECODE="reduced")
    assert not_ready(together) == set()
    difference()  # in bfloat16 where the processor has it the top label must be the same
