"""What a real server and `make drift` say of the classes that its network answers."""

import math
import re
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest

from bundle_door.watching.drift import ANSWERS
from bundle_serving.protocol import kserve
from bundle_serving.protocol.kserve import pb
from tests import axe
from tests.project import Project, wait_until
from tests.screens.chromium import browser

NETWORK = "resnet50_onnx"
PLAN = "resnet50_trt"
AFTER_IT = "postprocessing"  # reports what a plan answers
ROWS = 16


def name_reporter(project: Project) -> str:
    return AFTER_IT if project.settings["FLAVOUR"] == "gpu" else NETWORK


def answered(project: Project, noise: int, count: int = ANSWERS) -> None:
    """As many answers as a reference has, the same for the same noise: of the network, and of the
    step after it where that is a plan."""
    with grpc.insecure_channel(project.grpc) as channel:
        if project.settings["FLAVOUR"] == "gpu":
            scores = answered_over(channel, noise, count=count, network=PLAN)
            read(channel, scores, count)
        else:
            answered_over(channel, noise, count=count)


def read(channel: grpc.Channel, scores: pb.ModelInferResponse, count: int) -> None:
    asked = pb.ModelInferRequest(
        model_name=AFTER_IT, raw_input_contents=[scores.raw_output_contents[0]]
    )
    asked.inputs.add(name="INPUT_0", datatype="FP32", shape=scores.outputs[0].shape)
    for _ in range(math.ceil(count / ROWS)):
        kserve.stub(channel).ModelInfer(asked, timeout=60)


def answered_over(
    channel: grpc.Channel,
    noise: int,
    *metadata: tuple[str, str],
    count: int = ANSWERS,
    network: str = NETWORK,
) -> pb.ModelInferResponse:
    server = kserve.stub(channel)
    about = pb.ModelMetadataRequest(name=network)
    (pixels,) = server.ModelMetadata(about, metadata=metadata).inputs
    shape = [ROWS, *pixels.shape[1:]]
    rows = np.random.default_rng(0).integers(0, noise + 1, shape, dtype=pixels.datatype.lower())
    asked = pb.ModelInferRequest(model_name=network, raw_input_contents=[rows.tobytes()])
    asked.inputs.add(name=pixels.name, datatype=pixels.datatype, shape=shape)
    for _ in range(math.ceil(count / ROWS)):
        answer = server.ModelInfer(asked, timeout=60, metadata=metadata)
    return answer


def indices(project: Project) -> dict[str, float]:
    address = f"http://127.0.0.1:{project.settings['METRICS_PORT']}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    metric = f'bundle_answer_drift_index{{model="{name_reporter(project)}",.*of="(\\w+)"}} (\\S+)'
    found = re.findall(metric, text)
    return {of: float(index) for of, index in found}


def page_shows_the_shift(project: Project, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.look()
        tab.open(f"http://localhost:{project.settings['HTTP_PORT']}/")
        tab.until("document.querySelector('#drift .moved')?.innerText")
        assert "a shift" in tab.text("#drift .facts") and "% → 0.0 %" in tab.text("#drift .moved")
        # What came over gRPC is among the figures.
        tab.until(
            "[...document.querySelectorAll('#series td')].some(it => it.innerText === 'grpc')"
        )
        assert axe.violations(tab, axe.script()) == []
        assert tab.console == []


def a_reference_outlives_the_server(project: Project) -> None:
    def so_far(reference: str) -> None:
        told = re.compile(f"{reference}.*[1-9][0-9]* of 1,000 answers")
        wait_until(lambda: told.search(project.made("drift")), "the answers to be told")

    # Whatever other tests have asked, and however late the last answers are counted.
    for _ in range(2):
        answered(project, 0)
    project.made("drift", NEW="1")
    answered(project, 0, ROWS)
    so_far("reference: 1,000 answers, until ")
    project.made("down")
    project.made("up")
    # Nothing was asked since, so there is no new reference to take.
    assert "not enough" in project.make("drift", NEW="1").stderr
    answered(project, 0)
    wait_until(lambda: indices(project), "the index")
    assert max(indices(project).values()) < 0.1


@pytest.mark.rare
def test_answers_that_move_away_from_the_reference(served: Project, tmp_path: Path) -> None:
    a_reference_outlives_the_server(served)
    answered(served, 255)
    wait_until(lambda: indices(served)["class"] > 0.25, "the shift")
    page_shows_the_shift(served, tmp_path)
    told = served.made("drift")
    (about,) = re.findall(f"^- {name_reporter(served)}, .*$", told, re.MULTILINE)
    assert "(a shift)" in about and "no reference" not in about
    assert " 0.0%" in told
    # One that is taken now is whole at once, and nothing has been answered since.
    assert re.search("reference: .*; 0 of 1,000 answers since", served.made("drift", NEW="1"))
    assert indices(served) == {}
