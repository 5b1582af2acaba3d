"""Pictures and texts in, JSON out: with nothing but curl."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from zlib import decompress

import pytest

from bundle_door.documents import documents
from bundle_door.paths.api import Api
from bundle_door.paths.plain import PlainQuestions
from bundle_door.paths.routes import find_route, of_plain_questions, of_triton
from bundle_door.watching.steps import Steps
from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked
from tests.project import picture

pytestmark = [on_a_gpu_too, pytest.mark.skipif(not shutil.which("curl"), reason="no curl")]

LOW, HIGH = b"\xff" + bytes(9), b"\xff" * 10
MODEL = "model=picture"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {"low.jpg": LOW, "high.jpg": HIGH, "bad.png": b"PNG", "empty.jpg": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


def curl(server: Asked, path: str, *options: str) -> tuple[int, Any]:
    url = f"http://localhost:{server.http_port}/{path}"
    command = ["curl", "-sS", "-w", "\n%{http_code}", *options, url]
    body, _, status = subprocess.check_output(command, text=True).rpartition("\n")
    return int(status), json.loads(body)


def test_one_picture(server: Asked, files: dict[str, Path]) -> None:
    low = f"@{files['low.jpg']}"
    status, answer = curl(server, f"classify?{MODEL}&top=2", "--data-binary", low)
    assert status == 200 and answer["model"] == "picture"
    assert [label["label"] for label in answer["labels"]] == ["low", "high"]
    assert answer["labels"][0] == {"label": "low", "probability": pytest.approx(0.9), "index": 0}


def test_boxes_and_areas(server: Asked, tmp_path: Path) -> None:
    """Of pipelines that find things, with the times of their steps, and in a form."""
    (street := tmp_path / "street.jpg").write_bytes(picture((200, 100)))
    sent = ("--data-binary", f"@{street}")
    _, answer = curl(server, "classify?model=boxes&timings=1", *sent)
    assert answer["boxes"][0] == {
        "label": "car", "score": 0.91, "left": 20, "top": 10, "right": 120, "bottom": 90,
    }  # fmt: skip
    assert len(answer["boxes"]) == 3 and answer["timings"]["total_ms"] > 0
    _, answer = curl(server, "classify?model=areas&top=2", *sent)
    named = [(each["label"], each["index"], each["share"]) for each in answer["areas"]]
    assert named == [("__background__", 0, 0.5), ("car", 1, 0.375)] and "mask" not in answer
    _, answer = curl(server, "classify?model=areas&mask=1", *sent)
    mask = answer["mask"]
    assert (mask["height"], mask["width"]) == (2, 4) and len(answer["areas"]) == 3
    assert list(decompress(b64decode(mask["classes"]))) == [0, 0, 3, 1, 0, 0, 1, 1]
    _, answer = curl(server, "classify?model=boxes&top=1", "-F", f"file=@{street}")
    assert [len(each["boxes"]) for each in answer["results"]] == [1]


def test_good_and_bad_pictures_in_one_request(server: Asked, files: dict[str, Path]) -> None:
    sent = [option for path in files.values() for option in ("-F", f"file=@{path}")]
    status, answer = curl(server, f"classify?{MODEL}&top=1", *sent)
    assert status == 200
    results = {result.pop("file"): result for result in answer["results"]}
    assert results["low.jpg"]["labels"][0]["label"] == "low"
    assert results["high.jpg"]["labels"][0]["label"] == "high"
    assert results["bad.png"] == {"error": {"cause": "not a JPEG", "remedy": "send one"}}
    assert results["empty.jpg"]["error"]["cause"] == "the body is empty"


@pytest.mark.parametrize(
    "query, options, status, cause",
    [
        (MODEL, ["--data-binary", "@bad.png"], 400, "not a JPEG"),
        (MODEL, ["--data-binary", "@empty.jpg"], 400, "the body is empty"),
        (MODEL, ["-F", "file=@bad.png"], 400, None),
        (MODEL, ["-F", "field=text"], 400, "the form has no files"),
        (MODEL, ["-F", "file=@low.jpg"] * 33, 413, "more than 32 files in a request"),
        (MODEL, ["--data", "x", "-H", "Content-Type: multipart/form-data"], 400, "the form's"),
        (MODEL + "&top=0", ["--data-binary", "@low.jpg"], 400, "top=0 is not a number of labels"),
        (MODEL + "&top=many", ["--data-binary", "@low.jpg"], 400, "top=many is not a number"),
        (MODEL + "&topp=3", ["--data-binary", "@low.jpg"], 400, "topp is not a parameter of this"),
        (MODEL + "&timings=yes", ["--data-binary", "@low.jpg"], 400, "timings=yes is neither"),
        (MODEL + "&mask=1", ["--data-binary", "@low.jpg"], 400, "picture gives no mask"),
        (MODEL + "&top", ["--data-binary", "@low.jpg"], 400, "top= is not a number"),
        (MODEL + "&top=1&top=2", ["--data-binary", "@low.jpg"], 400, "top is given twice"),
        (f"model={'x' * 300}", ["--data-binary", "@low.jpg"], 400, "model has 300 characters"),
        ("model=text", ["--data-binary", "@low.jpg"], 400, "text does not accept picture files"),
        ("model=none", ["--data-binary", "@low.jpg"], 404, "Request for unknown model"),
    ],
)
def test_refusals_have_cause_and_remedy(
    server: Asked,
    files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    options: list[str],
    status: int,
    cause: str | None,
) -> None:
    monkeypatch.chdir(files["bad.png"].parent)
    answered, answer = curl(server, f"classify?{query}", *options)
    assert answered == status
    error = answer["error"] if cause else answer["results"][0]["error"]
    assert error["cause"].startswith(cause or "") and error["remedy"]


def test_the_path_of_what_takes_no_pictures_is_named(
    server: Asked, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["low.jpg"].parent)
    _, answer = curl(server, "classify?model=text", "--data-binary", "@low.jpg")
    assert answer["error"]["remedy"].startswith("send its inputs to /v2/models/text/infer")


def test_sentiment_where_it_is_not_served(server: Asked) -> None:
    status, answer = curl(server, "sentiment", "--data", "What a day!")
    assert status == 404 and "sentiment_ensemble" in answer["error"]["cause"]


def test_a_parameter_that_sentiment_does_not_have(server: Asked) -> None:
    status, answer = curl(server, "sentiment?top=3", "--data", "What a day!")
    assert status == 400 and answer["error"]["remedy"] == "known are timings"


def test_what_is_described_is_there(server: Asked) -> None:
    status, openapi = curl(server, "openapi.json")
    assert status == 200 and openapi == json.loads(documents()["/openapi.json"].body)
    steps = Steps(lambda report: None)
    api = Api(None, steps)  # type: ignore[arg-type]
    plain = PlainQuestions(None, steps)  # type: ignore[arg-type]
    routes = [*of_triton(api), *of_plain_questions(plain)]
    for path, calls in openapi["paths"].items():
        for method in calls.keys() - {"parameters"}:
            if not path.startswith("/v2/health/"):  # which the door answers itself
                assert find_route(routes, method.upper(), path.replace("{model}", "m"))


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/page/main.js", "/v2", "/v2/health/ready"]
)
def test_head_is_get_without_a_body(server: Asked, path: str) -> None:
    status, of_get, body = server.ask("GET", path)
    assert status == 200
    status, of_head, nothing = server.ask("HEAD", path)
    assert (status, nothing) == (200, b"") and len(of_head) == len(of_get)
    assert int(of_head["content-length"]) == len(body)


def test_head_where_there_is_nothing_to_get(server: Asked) -> None:
    assert server.ask("HEAD", "/classify")[0] == 405
    assert server.ask("HEAD", "/v2/logging")[0] == 403
    assert server.ask("PUT", "/v2")[1]["allow"] == "GET, HEAD"


def test_the_page_needs_nothing_from_elsewhere(server: Asked) -> None:
    for path in ("/", "/docs"):
        status, headers, body = server.ask("GET", path)
        assert status == 200 and headers["content-type"].startswith("text/html")
        assert not re.search(rb"https?://", body)
