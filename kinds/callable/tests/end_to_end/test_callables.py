"""Functions of the user's own, beside all other pipelines of a real server."""

import http.client
import json
import os
import queue
import runpy
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from numpy.typing import NDArray
from pytriton.client import DecoupledModelClient, ModelClient

from bundle_serving import infer
from bundle_serving.infer import Answer
from tests.plugin import ON_A_GPU
from tests.project import Project, error_lines, run, wait_until
from tests.wheels import write_wheel

# Two in one file, the second with an instance for each device; what they refuse, and what breaks
# them, is decided by the number that is sent.
TWO = """
import os

import numpy as np
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError, PyTritonUnrecoverableError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor


@batch
def added(left, right):
    number = left[0, 0]
    if number == 1:
        raise ValueError("one is too few")
    if number == 2:
        raise PyTritonBadParameterError("two is not taken")
    if number == 3:
        return {"sum": np.zeros((len(left), 3), np.float32)}
    if number == 4:
        raise PyTritonUnrecoverableError("four broke it")
    if (left == 5).any():
        raise ValueError("a five in the batch")
    return [left + right]


class Who:
    def __init__(self, device):
        self.device = device

    @batch
    def __call__(self, text):
        device = np.array([[self.device]] * len(text))
        process = np.full((len(text), 1), os.getpid())
        return {"device": device, "echo": text, "process": process}


def instances(devices):
    return [Who(device) for device in devices]


def bind(triton):
    numbers = {"dtype": np.float32, "shape": (2,)}
    triton.bind(
        "added",
        added,
        inputs=[Tensor(name="left", **numbers), Tensor(name="right", **numbers)],
        outputs=[Tensor(name="sum", **numbers)],
        config=ModelConfig(
            max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=100_000)
        ),
        strict=True,
    )
    triton.bind(
        "who",
        instances(["cuda", "cpu"]),
        inputs=[Tensor(name="text", dtype=bytes, shape=(-1,))],
        outputs=[
            Tensor(name="echo", dtype=bytes, shape=(-1,)),
            Tensor(name="device", dtype=bytes, shape=(1,)),
            Tensor(name="process", dtype=np.int64, shape=(1,)),
        ],
    )
"""


# As programs for PyTriton are: a server of its own, arguments, a factory for devices.
DESK = """
import argparse
import asyncio
import logging

import numpy as np
from pytriton.decorators import batch, first_value
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

logger = logging.getLogger("desk")
TOPICS = {b"bill": b"payment", b"card": b"payment", b"login": b"access"}


class Sorter:
    def __init__(self, device):
        logger.info("on %s", device)

    @batch
    def __call__(self, ticket):
        if (ticket == b"out of memory").any():
            raise PyTritonUnrecoverableError("the model is broken")
        found = [[TOPICS[word] for word in text.split() if word in TOPICS] for (text,) in ticket]
        topic = np.array([[words[0] if words else b"other"] for words in found])
        return {"topic": topic, "words": np.array([[len(words)] for words in found], np.int32)}


def sorters(devices):
    return [Sorter(device) for device in devices]


@batch
@first_value("mask")
def masked(text, mask):
    digits = str.maketrans("0123456789", mask.decode() * 10)
    return [np.char.encode(np.char.translate(np.char.decode(text.astype("S")), digits))]


@batch
def told(text):
    for position in range(max(len(row.split()) for (row,) in text)):
        yield {"word": np.array([[row.split()[position]] for (row,) in text])}


async def weighed(requests):
    await asyncio.sleep(0)
    by = [(request.parameters or {}).get("by", 1) for request in requests]
    return [
        {"weight": np.char.str_len(request["text"].astype("S")).astype(np.float32) * factor}
        for request, factor in zip(requests, by)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-batch-size", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    text = {"dtype": bytes, "shape": (1,)}
    with Triton(config=TritonConfig(http_port=8000, log_verbose=4)) as triton:
        triton.bind(
            model_name="DeskTopic",
            infer_func=sorters(["cpu", "cpu"]),
            inputs=[Tensor(name="ticket", **text)],
            outputs=[
                Tensor(name="topic", **text),
                Tensor(name="words", dtype=np.int32, shape=(1,)),
            ],
            config=ModelConfig(max_batch_size=args.max_batch_size, batcher=DynamicBatcher()),
            strict=True,
        )
        triton.bind(
            model_name="desk_masked",
            infer_func=masked,
            inputs=[Tensor(name="text", **text), Tensor(name="mask", **text)],
            outputs=[Tensor(name="masked", **text)],
            config=ModelConfig(max_batch_size=args.max_batch_size),
            strict=True,
        )
        triton.bind(
            model_name="Desk-Told",
            infer_func=told,
            inputs=[Tensor(name="text", **text)],
            outputs=[Tensor(name="word", **text)],
            config=ModelConfig(max_batch_size=1, decoupled=True),
            strict=True,
        )
        triton.bind(
            model_name="desk_weighed",
            infer_func=weighed,
            inputs=[Tensor(name="text", **text)],
            outputs=[Tensor(name="weight", dtype=np.float32, shape=(1,))],
            strict=True,
        )
        triton.serve()


if __name__ == "__main__":
    main()

EXAMPLES = {"desk_masked": {"text": "Are you there?", "mask": "#"}}
"""


TEXTS = np.array([["ä".encode(), b"b"]])

# As many answers as a text has words.
WORDS = """
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor


@batch
def words(text):
    for word in text[0, 0].split():
        if word == b"bad":
            raise ValueError("a bad word")
        yield {"word": np.array([[word]] * len(text))}


def bind(triton):
    texts = {"dtype": bytes, "shape": (1,)}
    config = ModelConfig(max_batch_size=1, decoupled=True)
    taken, given = [Tensor(name="text", **texts)], [Tensor(name="word", **texts)]
    triton.bind("words", words, taken, given, config=config, strict=True)
"""


SINGING = """
import numpy as np
import robins
from pytriton.decorators import batch
from pytriton.model_config import Tensor


@batch
def singing(text):
    return {"song": np.array([[robins.sing(row.decode())] for (row,) in text])}


def bind(triton):
    texts = {"dtype": bytes, "shape": (1,)}
    taken, given = [Tensor(name="text", **texts)], [Tensor(name="song", **texts)]
    triton.bind("singing", singing, taken, given)
"""


@pytest.fixture
def own(served: Project, tmp_path: Path) -> Iterator[Path]:
    """A folder for files; what they bind is removed at the end."""
    try:
        yield tmp_path
    finally:
        for recipe in (served.path / "own" / "recipes").glob("*.yaml"):
            served.made("remove-model", NAME=recipe.stem)


@pytest.fixture
def two(served: Project, own: Path) -> Path:
    file = own / "two.py"
    file.write_text(TWO)
    served.made("add-callable", FILE=str(file))
    return file


def asked(project: Project, model: str, **inputs: Any) -> Any:
    return json.loads(project.made("ask", MODEL=model, INPUTS=json.dumps(inputs)).splitlines()[-1])


def answered(project: Project, model: str, **inputs: NDArray[Any]) -> Answer:
    return infer.ask(http.client.HTTPConnection(project.http, timeout=60), model, inputs)


def refusal(project: Project, model: str, **inputs: Any) -> str:
    (line,) = error_lines(project.make("ask", MODEL=model, INPUTS=json.dumps(inputs)).stderr)
    return line


def test_from_the_template_to_an_answer(served: Project, own: Path) -> None:
    file = str(own / "mine.py")
    assert "test_mine.py" in served.made("add-callable", NEW=file)
    began = served.server_began()
    shown = served.made("add-callable", FILE=file)
    assert "up: mine, serving programs alone" in shown and shown.endswith('{"words": [3]}\n')
    assert asked(served, "mine", text="What a day!") == {"words": [3]}
    assert served.server_began() == began
    body = json.dumps({"inputs": [{"name": "text", "datatype": "BYTES", "shape": [2, 1],
                                   "data": ["one two", "three"]}]})  # fmt: skip
    connection = http.client.HTTPConnection(served.http, timeout=60)
    connection.request("POST", "/v2/models/mine/infer", body)
    assert json.load(connection.getresponse())["outputs"][0]["data"] == [2, 1]
    connection.request("POST", "/v2/models/mine/infer", "{}")
    assert connection.getresponse().status == 400
    assert "removed: mine" in served.made("remove-model", NAME="mine")
    assert not list(served.path.glob("own/*/mine*")) and not list(served.path.glob("build/*/mine*"))


on_a_gpu_too = pytest.mark.parametrize("served", ["local", ON_A_GPU], indirect=True)


@on_a_gpu_too
def test_several_of_one_file_and_their_instances(served: Project, two: Path) -> None:
    assert asked(served, "added", left=[0, 6], right=[3, 4]) == {"sum": [3, 10]}
    seen: dict[bytes, int] = {}
    with ThreadPoolExecutor(4) as pool:  # Triton gives each request to an idle instance
        while len(seen) < 2:
            for answer in pool.map(lambda text: answered(served, "who", text=text), [TEXTS] * 4):
                assert answer["echo"].tolist() == TEXTS.tolist()
                seen[answer["device"][0, 0]] = int(answer["process"][0, 0])
    assert seen.keys() == {b"cuda", b"cpu"} and len(set(seen.values())) == 2


@on_a_gpu_too
def test_what_fails_says_so_in_one_line_and_fails_nobody_else(served: Project, two: Path) -> None:
    assert "added: ValueError: one is too few" in refusal(
        served, "added", left=[1, 1], right=[1, 1]
    )
    refused = refusal(served, "added", left=[2, 1], right=[1, 1])
    assert "HTTP" not in refused and "two is not taken" in refused
    refused = refusal(served, "added", left=[3, 1], right=[1, 1])
    assert "HTTP" not in refused and "invalid shapes" in refused and "(3,)" in refused
    refused = refusal(served, "added", left=[0, 1])
    assert "INPUTS: right is missing; give JSON with left (FP32 [2])" in refused

    def ask(number: int) -> str:
        row = np.array([[6, number]], np.float32)
        try:
            return str(answered(served, "added", left=row, right=row)["sum"].tolist())
        except ValueError as fault:
            return str(fault)

    # Those that come within a tenth of a second share a batch.
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, [5, 6, 7, 8]))
    assert "a five in the batch" in answers[0]
    assert answers[1:] == [str([[12.0, 2.0 * number]]) for number in (6, 7, 8)]


@pytest.mark.rare
@on_a_gpu_too
def test_a_decoupled_one_has_as_many_answers_as_it_likes(served: Project, own: Path) -> None:
    """Each by itself in a stream over gRPC; over HTTP all together."""
    (own / "words.py").write_text(WORDS)
    served.made("add-callable", FILE=str(own / "words.py"))
    shown = served.made("ask", MODEL="words", INPUTS='{"text": "What a day!"}')
    assert [json.loads(line)["word"] for line in shown.splitlines()] == [["What"], ["a"], ["day!"]]
    assert "words: ValueError: a bad word" in refusal(served, "words", text="a bad one")
    assert "it gave no answer" in refusal(served, "words", text="")
    for headers in (None, {"triton_grpc_error": "true"}):
        word, fault = streamed(served, "two bad words", headers)
        assert word.tolist() == [[b"two"]]
        assert "a bad word" in str(fault)
    (own / "words.py").write_text(WORDS.replace("[word]", "[word.upper()]"))
    served.made("publish", MODEL="words")
    (line,) = error_lines(served.make("rollout", MODEL="words").stderr)
    assert "words version 2 is decoupled" in line and "make up MODEL=words" in line
    assert "(words version 2)" in served.made("up", MODEL="words")
    assert asked(served, "words", text="day") == {"word": ["DAY"]}


def streamed(project: Project, text: str, headers: dict[str, str] | None) -> list[Any]:
    """The first two answers to it."""
    answers: queue.Queue[Any] = queue.Queue()
    tensor = tritonclient.grpc.InferInput("text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text]], np.object_))
    with tritonclient.grpc.InferenceServerClient(project.grpc) as client:
        client.start_stream(
            lambda result, error: answers.put(error or result.as_numpy("word")), headers=headers
        )
        client.async_stream_infer("words", [tensor])
        return [answers.get(timeout=60) for _ in range(2)]


@pytest.mark.rare
@on_a_gpu_too
def test_what_dies_comes_back(served: Project, two: Path) -> None:
    began = served.server_began()
    process = asked(served, "who", text=["a"])["process"][0]
    kill(served, process)
    for _ in range(4):
        assert asked(served, "who", text=["a"])["process"][0] != process
    refused = refusal(served, "added", left=[4, 1], right=[1, 1])
    assert "added: PyTritonUnrecoverableError: four broke it" in refused
    assert asked(served, "added", left=[0, 1], right=[1, 1]) == {"sum": [1, 2]}
    restored = [f"{model}: it lacked a process" for model in ("who_function", "added_function")]
    wait_until(lambda: all(line in served.made("logs") for line in restored), "the keeper's lines")
    assert served.server_began() == began


def kill(project: Project, process: int) -> None:
    """By the number that it has for itself."""
    if project.settings["FLAVOUR"] == "local":
        os.kill(process, signal.SIGKILL)
    else:
        run("docker", "exec", project.container(), "sh", "-c", f"kill -9 {process}")


@pytest.mark.parametrize("served", ["local"], indirect=True)  # NVIDIA's image takes no packages
def test_it_imports_what_is_installed_for_it_alone(served: Project, own: Path) -> None:
    write_wheel(own / "wheels", "robins", "1.0", "def sing(text):\n    return text[::-1]\n")
    (own / "requirements.txt").write_text("--no-index\n--find-links wheels\nrobins==1.0\n")
    (own / "singing.py").write_text(SINGING)
    served.made("add-callable", FILE=str(own / "singing.py"))
    assert asked(served, "singing", text="abc") == {"song": ["cba"]}
    lies = served.path / "build" / "live" / "singing_function" / "1" / "packages"
    assert {"robins.py", "locked.txt"} <= {path.name for path in lies.iterdir()}
    (own / "requirements.txt").write_text("--no-index\n--find-links wheels\nrobins==2.0\n")
    (line,) = error_lines(served.make("publish", MODEL="singing").stderr)
    assert "No matching distribution found for robins==2.0" in line


@pytest.mark.rare
@on_a_gpu_too
def test_a_version_is_tried_published_and_rolled_out(served: Project, two: Path) -> None:
    two.write_text(TWO.replace("[left + right]", "[left - right]"))
    assert "published: added version 2" in served.made("publish", MODEL="added")
    assert asked(served, "added", left=[0, 6], right=[3, 4]) == {"sum": [3, 10]}
    quick = {"MODEL": "added", "WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}
    (line,) = error_lines(served.make("rollback", **quick).stderr)
    assert line.endswith("choose one: make rollout MODEL=added VERSION=…")
    output = served.made("rollout", **quick)
    assert "added version 2 is live; 0 of " in output and "EVAL=" not in output
    assert asked(served, "added", left=[0, 6], right=[3, 4]) == {"sum": [-3, 2]}
    assert "; 0 of " in served.made("rollback", **quick)
    assert asked(served, "added", left=[0, 6], right=[3, 4]) == {"sum": [3, 10]}
    for broken, reason in {
        "import nothing_like_it\n" + TWO: "two.py, line 1: ModuleNotFoundError",
        TWO.replace('shape": (2,)', 'shape": (3,)'): "inputs, outputs, request of added in two.py",
        TWO.replace('"added",', '"another",'): "two.py does not bind added any more",
    }.items():
        two.write_text(broken)
        (line,) = error_lines(served.make("publish", MODEL="added").stderr)
        assert reason in line
    assert len(list((served.path / "build" / "versions" / "added").glob("[0-9]*"))) == 2


@on_a_gpu_too
def test_what_cannot_be_served_leaves_nothing_behind(served: Project, own: Path) -> None:
    file, recipes = own / "two.py", served.path / "own" / "recipes"
    for text, reason in {
        "def bind(triton:": "two.py, line 1: SyntaxError",
        TWO.replace("dtype=bytes", "dtype=str", 1): "who: text is of str; take bytes",
        TWO.replace("number == 1", "number == 0"): "added does not answer its example",
        TWO.replace('"who",', '"detection",'): "detection already exists",
        # Which only the server sees.
        TWO.replace("class Who:", "class Who:\n    assert 'function' not in __file__"): (
            "NotServed: function.py, line 27: AssertionError; correct it; see make logs"
        ),
    }.items():
        file.write_text(text)
        (line,) = error_lines(served.make("add-callable", FILE=str(file)).stderr)
        assert reason in line, line
        assert not list(recipes.glob("*")) and not list(served.path.glob("build/live/added*"))
    (line,) = error_lines(served.make("add-callable", FILE=str(own / "none.py")).stderr)
    assert "there is no file" in line
    assert "added" not in served.made("models")


@on_a_gpu_too
def test_a_program_for_pytriton_answers_its_clients_as_its_functions_do(
    served: Project, own: Path
) -> None:
    """Asked by PyTriton's clients; compared with what is inside its decorators."""
    (own / "desk.py").write_text(DESK)
    desk: Any = SimpleNamespace(**runpy.run_path(str(own / "desk.py")))
    served.made("add-callable", FILE=str(own / "desk.py"))
    tickets = texts("my bill is wrong", "login, please", "hello", "card or bill 12")
    by_http, by_grpc = f"http://{served.http}", f"grpc://{served.grpc}"

    def sorted_tickets() -> dict[str, Any]:
        with ModelClient(by_http, "DeskTopic", inference_timeout_s=60) as client:
            return plain(client.infer_batch(tickets))

    expected = plain(desk.Sorter.__call__.__wrapped__(desk.Sorter("cpu"), tickets))
    assert expected["topic"] == [[b"payment"], [b"other"], [b"other"], [b"payment"]]
    assert sorted_tickets() == expected
    with ModelClient(by_grpc, "desk_masked") as client:
        answer = plain(client.infer_batch(tickets, texts(*"####")))
    inside = desk.masked.__wrapped__.__wrapped__
    assert answer["masked"] == inside(tickets, b"#")[0].tolist()
    assert answer["masked"][-1] == [b"card or bill ##"]
    with DecoupledModelClient(by_grpc, "Desk-Told") as client:
        parts = [part["word"].tolist() for part in client.infer_sample(tickets[3])]
    whole = desk.told.__wrapped__(tickets[3:])
    assert [[part] for part in parts] == [part["word"].tolist() for part in whole]
    with ModelClient(by_http, "desk_weighed") as client:
        assert client.infer_sample(tickets[0])["weight"].tolist() == [16]
        assert client.infer_sample(tickets[0], parameters={"by": 3})["weight"].tolist() == [48]
    broken = refusal(served, "DeskTopic", ticket="out of memory")
    assert "DeskTopic: PyTritonUnrecoverableError: the model is broken" in broken
    assert [sorted_tickets() for _ in range(4)] == [expected] * 4


def texts(*each: str) -> NDArray[Any]:
    return np.array([[text.encode()] for text in each], np.object_)


def plain(answer: dict[str, NDArray[Any]]) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in answer.items()}
