"""make trace: the parts of a request's time, and that they add up."""

from itertools import pairwise

import numpy as np
import pytest

from bundle_serving import infer
from scripts.base.tables import lay_out
from scripts.measuring.one_request import (
    describe_best,
    describe_outputs,
    explain_refusal,
    is_one_file,
    list_rows,
    make_request,
    read_timings,
    spans,
)

TIMINGS = {
    "total_ms": 30.0,
    "spans": [
        {"name": "received", "start_ms": 0.0, "ms": 1.0},
        {"name": "preprocessing", "start_ms": 2.0, "ms": 8.0},
        {"name": "network", "start_ms": 10.0, "ms": 19.0},
    ],
}
HEADER = (
    "received;dur=1.0;start=0.0, preprocessing;dur=8.0;start=2.0, network;dur=19.0;start=10.0, "
    "total;dur=30.0"
)


def test_the_doors_times_are_read() -> None:
    assert read_timings(HEADER) == TIMINGS
    # An earlier door's, which does not say when; a proxy's; none.
    for header in ("received;dur=1.0, total;dur=30.0", "cache;dur=1.0;start=0", "cdn", ""):
        assert read_timings(header) == {}


def test_the_times_add_up() -> None:
    found = spans({"reading": 0.5, "connecting": 1.5}, 34.0, TIMINGS)
    assert [(each.where, each.ms) for each in found] == [
        ("client", 0.5), ("client", 1.5), ("wire", 2.0), ("door", 1.0), ("door", 1.0),
        ("step", 8.0), ("step", 19.0), ("door", 1.0), ("wire", 2.0),
    ]  # fmt: skip
    assert sum(each.ms for each in found) == 36.0 == found[-1].end
    for one, next_one in pairwise(found):
        assert one.end == pytest.approx(next_one.start)


def test_as_drawn() -> None:
    rows = list_rows(spans({"reading": 0.5}, 34.0, TIMINGS))
    shown = lay_out("llrl", ("", "", "ms", ""), rows, 80)
    head, *lines, total = (line.plain for line in shown)
    assert head.split() == ["ms"] and total.split() == ["total", "34.5"]
    (network,) = (line for line in lines if " network " in line)
    assert network.startswith("step    network") and "19.0" in network and network.endswith("█")


def test_a_file_is_asked_about_plainly_and_tensors_by_kserve() -> None:
    file = {"INPUT": np.frombuffer(b"JPEG", np.uint8)[None]}
    assert is_one_file(file) and make_request("a b", file, True) == (
        "/classify?top=1&model=a%20b", b"JPEG", {},
    )  # fmt: skip
    text = {"QUERY": np.array([[b"What a day!"]])}
    pixels = {"INPUT": np.zeros((1, 2, 2, 3), np.float32)}
    for question in (text, pixels, file | text):
        assert not is_one_file(question)
    path, body, headers = make_request("sentiment", text, False)
    assert path == "/v2/models/sentiment/infer?timings=1"
    assert body.endswith(b"What a day!") and list(headers) == [infer.LENGTH]


def test_what_was_answered_is_said() -> None:
    labels = [{"label": "mug", "index": 504, "probability": 0.987}]
    assert describe_best({"labels": labels}) == "mug, 98.7%"
    assert describe_best({"boxes": []}) == "no boxes"
    answer = {"LABEL": np.array([[b"positive"]]), "SCORE": np.array([[0.98764]], np.float32)}
    assert describe_outputs(answer) == "LABEL positive, SCORE 0.9876"
    many = {"OUTPUT": np.arange(8, dtype=np.int32)[None]}
    assert describe_outputs(many) == "OUTPUT 0 1 2 …"


@pytest.mark.parametrize(
    ("content", "cause", "remedy"),
    [
        (b'{"error": {"cause": "no picture", "remedy": "send one"}}', "no picture", "send one"),
        (b'{"error": "no picture; send one"}', "no picture", "send one"),
        (b'{"error": "unknown model"}', "unknown model", "see make logs"),
        (b"Bad Gateway", "HTTP 400", "see make logs"),
    ],
)
def test_a_refusal_is_an_error_with_its_remedy(content: bytes, cause: str, remedy: str) -> None:
    found = explain_refusal(400, content)
    assert (found.cause, found.remedy) == (cause, remedy)
