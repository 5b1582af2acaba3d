"""The same questions to the server, brought up by processes and by containers."""

import asyncio
import json
import shutil
import subprocess
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from benchmark.torture.odd_pictures import CATALOGUE
from bundle_client import AsyncClient, Client, PictureRefused, Result
from bundle_client.server import Protocol
from bundle_door.paths.page_data import PENDING
from tests.plugin import everywhere
from tests.project import Project, interrupt, picture, wait_until

PIPELINE = "ensemble_python_resnet50"
LARGE = ("asyncio", "docker", "grpc", "numpy", "PIL", "pydantic", "torch", "tritonclient", "yaml")
PHOTOS = {"mug.jpg": "coffee mug", "car.jpg": "sports car", "vulture.jpeg": "vulture"}


@everywhere
@pytest.mark.parametrize("photo", PHOTOS)
def test_classify_names_what_is_on_the_photo(served: Project, assets: Path, photo: str) -> None:
    out = served.made("classify", IMG=str(assets / "images" / photo), JSON="1")
    assert json.loads(out)["labels"][0]["label"] == PHOTOS[photo]


def test_a_server_that_is_up_is_asked_at_once(served: Project, tmp_path: Path) -> None:
    (tmp_path / "noise.jpg").write_bytes(picture())
    asked = served.make("classify", IMG=str(tmp_path / "noise.jpg"))
    assert asked.returncode == 0 and asked.stderr == ""


@pytest.mark.parametrize("command", ["up", "status"])
def test_programs_are_told_the_version(served: Project, command: str) -> None:
    lines = [json.loads(line) for line in served.made(command, JSON="1").splitlines()]
    assert [line["version"] for line in lines if "version" in line]


@everywhere
def test_a_second_up_leaves_the_server_alone(served: Project) -> None:
    assert "up already" in served.made("up")


@everywhere
def test_status_tells_what_is_served(served: Project) -> None:
    out = served.made("status")
    assert "mobilenet_v2" in out
    for model in ("preprocessing", served.network, "postprocessing", PIPELINE):
        assert model in out


@pytest.mark.parametrize("command", ["classify", "status", "models", "history"])
def test_a_command_that_only_asks_imports_nothing_large(
    served: Project, tmp_path: Path, command: str
) -> None:
    """It answers in less than the half second that some of these take."""
    (tmp_path / "noise.jpg").write_bytes(picture())
    asked = served.make(command, IMG=str(tmp_path / "noise.jpg"), PYTHONPROFILEIMPORTTIME="1")
    assert asked.returncode == 0
    imported = {line.split("|")[-1].strip() for line in asked.stderr.splitlines()}
    assert {
        "scripts",
        "bundle_client.answers" if command == "classify" else "rich",
    } <= imported
    # What is in a container is asked of Docker.
    needed = {"docker"} if command == "status" and served.settings["FLAVOUR"] != "local" else set()
    assert imported & {*LARGE} == needed


def test_pictures_that_are_none(served: Project, tmp_path: Path) -> None:
    (tmp_path / "letter.jpg").write_text("Dear Sir or Madam")
    for words, cause in (
        (str(tmp_path / "letter.jpg"), "not a readable picture"),
        (str(tmp_path / "nowhere.jpg"), "nowhere.jpg"),
        ("", "no picture given"),
    ):
        refused = served.make("classify", IMG=words)
        assert refused.returncode != 0
        assert cause in refused.stderr and "Traceback" not in refused.stderr
        assert refused.stderr.count("error:") == 1


def test_the_server_does_not_hear_a_ctrl_c_meant_for_others(served: Project) -> None:
    logs = served.start_make("logs", FOLLOW="1")
    interrupt(logs)
    served.made("status")


def test_the_usual_example_client_works_unchanged(served: Project) -> None:
    """The calls that Triton's python_backend example for preprocessing makes, in its order."""
    client = tritonclient.grpc.InferenceServerClient(url=served.grpc)
    image = np.expand_dims(np.frombuffer(picture(), dtype="uint8"), axis=0)
    tensor = tritonclient.grpc.InferInput("INPUT", image.shape, "UINT8")
    tensor.set_data_from_numpy(image)
    wanted = tritonclient.grpc.InferRequestedOutput("OUTPUT")
    answer = client.infer(model_name=PIPELINE, inputs=[tensor], outputs=[wanted])
    scores = answer.as_numpy("OUTPUT")
    assert scores.shape == (1, 1000)
    assert scores.sum() == pytest.approx(1, abs=1e-3)
    labels = (served.path / "build" / "live" / PIPELINE / "labels.txt").read_text().splitlines()
    assert labels[int(np.argmax(scores, axis=1)[0])]


def test_the_network_itself_tells_upstreams_image_clients_enough(served: Project) -> None:
    """Where the channels are, and the names of the classes: image_client.py goes by both."""
    with tritonclient.http.InferenceServerClient(served.http) as server:
        (asked,) = server.get_model_config(served.network)["input"]
        assert asked["format"] == "FORMAT_NCHW"
        pixels = tritonclient.http.InferInput("input", [3, 3, 224, 224], "UINT8")
        pixels.set_data_from_numpy(np.zeros((3, 3, 224, 224), np.uint8))
        two = tritonclient.http.InferRequestedOutput("output", class_count=2)
        answered = server.infer(served.network, [pixels], outputs=[two]).as_numpy("output")
    assert answered.shape == (3, 2)
    known = (served.path / "build/live" / served.network / "labels.txt").read_text().splitlines()
    _, number, label = answered[0, 0].decode().split(":", 2)
    assert label == known[int(number)]


def test_the_raw_body_of_curl_is_enough(served: Project, tmp_path: Path) -> None:
    (tmp_path / "noise.jpg").write_bytes(picture())
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl here")
    url = f"http://{served.http}/v2/models/{PIPELINE}/infer"
    body = f"@{tmp_path / 'noise.jpg'}"
    header = "Inference-Header-Content-Length: 0"
    done = subprocess.run(
        [curl, "--silent", "--fail", "--data-binary", body, "-H", header, url],
        capture_output=True,
        check=True,
    )
    start = done.stdout.index(b"}]}") + 3
    assert np.frombuffer(done.stdout[start:], np.float32).shape == (1000,)


def test_two_pictures_in_one_request(served: Project) -> None:
    """Image files of one request are padded to one length; what follows a file is not read."""
    client = tritonclient.http.InferenceServerClient(url=served.http)
    files = [picture((300, 200)), picture((90, 400), "PNG")]
    batch = np.zeros((2, max(map(len, files))), np.uint8)
    for row, data in zip(batch, files, strict=True):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    tensor = tritonclient.http.InferInput("INPUT", batch.shape, "UINT8")
    tensor.set_data_from_numpy(batch)
    together = client.infer(PIPELINE, [tensor]).as_numpy("OUTPUT")
    for row, data in zip(together, files, strict=True):
        alone = tritonclient.http.InferInput("INPUT", [1, len(data)], "UINT8")
        alone.set_data_from_numpy(np.frombuffer(data, np.uint8)[None])
        assert np.allclose(row, client.infer(PIPELINE, [alone]).as_numpy("OUTPUT"), atol=0.02)


def test_a_client_for_asyncio_finds_the_main_pipeline(served: Project) -> None:
    async def ask() -> Result:
        async with AsyncClient(url=served.http, timeout=120) as client:
            return await client.classify(picture(), top=1)

    assert asyncio.run(ask()).labels


def test_odd_pictures_get_their_own_answer_beside_good_ones(served: Project) -> None:
    """Everything at once: what is odd or broken shares batches with what is good."""
    good = picture()
    cases = [case for case in CATALOGUE if case.data()]  # the client does not send nothing

    async def ask_all() -> tuple[list[object], list[object]]:
        async with AsyncClient(url=served.grpc, protocol="grpc", timeout=120) as client:

            async def ask(data: bytes) -> object:
                try:
                    return await client.classify(data, top=1)
                except Exception as fault:
                    return fault

            odd = [asyncio.ensure_future(ask(case.data())) for case in cases]
            neighbours = [asyncio.ensure_future(ask(good)) for _ in cases]
            return await asyncio.gather(*odd), await asyncio.gather(*neighbours)

    before = executions(served)
    odd, neighbours = asyncio.run(ask_all())
    assert len(cases) >= 50
    for answer in neighbours:
        assert not isinstance(answer, Exception), answer
    for case, answer in zip(cases, odd, strict=True):
        if case.refusal is None:
            assert not isinstance(answer, Exception), f"{case.name}: {answer}"
        else:
            assert isinstance(answer, PictureRefused), f"{case.name}: {answer!r}"
            assert case.refusal in str(answer), case.name
    after = executions(served)
    assert after[0] - before[0] > after[1] - before[1], "no two pictures shared a batch"


def test_a_picture_of_no_bytes_is_refused(served: Project) -> None:
    client = tritonclient.http.InferenceServerClient(url=served.http)
    tensor = tritonclient.http.InferInput("INPUT", [1, 0], "UINT8")
    tensor.set_data_from_numpy(np.zeros((1, 0), np.uint8))
    with pytest.raises(InferenceServerException, match="empty") as refused:
        client.infer(PIPELINE, [tensor])
    assert refused.value.status() == "400"


def executions(served: Project) -> tuple[int, int]:
    client = tritonclient.http.InferenceServerClient(url=served.http)
    key = {"admin-key": served.admin_key}
    (stats,) = client.get_inference_statistics("preprocessing", headers=key)["model_stats"]
    return stats["inference_count"], stats["execution_count"]


def test_untrained_weights_say_so_in_the_label(served: Project) -> None:
    labels = (served.path / "build" / "live" / PIPELINE / "labels.txt").read_text().splitlines()
    untrained = served.settings["WEIGHTS"] == "random"
    assert all(label.endswith("(untrained weights)") == untrained for label in labels)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_many_pictures_over_either_protocol(served: Project, protocol: Protocol) -> None:
    files = [picture((64 + n, 48)) for n in range(24)]
    url = served.http if protocol == "http" else served.grpc
    with Client(url=url, protocol=protocol) as client:
        results = list(client.classify_many([*files, b"no picture"], concurrency=8))
    assert sum(result.error is None for result in results) == 24
    assert sum(isinstance(result.error, PictureRefused) for result in results) == 1


def test_interactive_requests_pass_those_of_a_batch(served: Project) -> None:
    """Through every step: many that were asked before it are answered after it."""
    asked: list[str] = []
    answers: list[int | str] = []
    passed = threading.Event()
    photo = picture((500, 375))
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        tensor = tritonclient.grpc.InferInput("INPUT", [1, len(photo)], "UINT8")
        tensor.set_data_from_numpy(np.frombuffer(photo, np.uint8)[None])
        one_at_a_time = threading.RLock()  # to ask: from here, and from where answers come in

        def ask(name: str, priority: int) -> int:
            with one_at_a_time:
                number = len(asked)
                asked.append(name)

                def answered(result: object, error: object) -> None:
                    answers.append(number if error is None else f"{name}: {error}")
                    if not passed.is_set():
                        ask("batch", 2)  # the queue stays full, however slow this process is

                client.async_infer(PIPELINE, [tensor], answered, priority=priority)
                return number

        for _ in range(120):  # which the queues can hold
            ask("batch", 2)
        wait_until(lambda: waiting(served) > 60, "a full queue")

        def passes() -> bool:
            """Asked later, answered before others; but not if it was long on its way to them."""
            number = ask("interactive", 0)  # no priority named: the first
            wait_until(lambda: number in answers, "the interactive one's answer")
            sooner = answers[: answers.index(number)]
            waiting_still = number - sum(isinstance(one, int) and one < number for one in sooner)
            # In one queue for all it would be those that others compute meanwhile, in batches of
            # 16: asked with the batch's priority, it passed 27 at the most.
            return waiting_still > 48

        wait_until(passes, "an interactive request that passes those of a batch")
        passed.set()
        wait_until(lambda: len(answers) == len(asked), "all answers")
    assert sorted(answers, key=str) == sorted(range(len(asked)), key=str)  # no error


def waiting(project: Project) -> int:
    """Requests in the queues of all steps."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{project.settings['METRICS_PORT']}/metrics"
    ) as answer:
        return sum(int(count) for _, count in PENDING.findall(answer.read().decode()))
