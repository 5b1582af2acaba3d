"""What is compared of two answers to the same request, and what is said of many."""

import json
from array import array
from typing import Any

import pytest

from bundle_door.answers import Answer
from bundle_door.watching.shadows import (
    DIFFERS,
    FAILED,
    LEFT_OUT,
    MOST_CHANGES,
    MOST_EXAMPLES,
    SAME,
    Compared,
    Shadow,
)
from bundle_serving.protocol.gists import HEADER_LENGTH, MOST_CLASSES, read_gist
from scripts.rollout.shadow import Seen


def with_tensors(*outputs: tuple[str, bytes]) -> Answer:
    described = [
        {"name": f"O{at}", "datatype": datatype, "parameters": {"binary_data_size": len(content)}}
        for at, (datatype, content) in enumerate(outputs)
    ]
    head = json.dumps({"outputs": described}).encode()
    body = head + b"".join(content for _, content in outputs)
    return Answer(body, headers={HEADER_LENGTH: str(len(head))})


def in_json(content: dict[str, Any]) -> Answer:
    return Answer(json.dumps(content).encode())


LABEL = {"label": "tabby", "probability": 0.5, "index": 281}
LABELLED = b"0.75:281:tabby: a cat"


@pytest.mark.parametrize(
    ("answer", "gist"),
    [
        (in_json({"labels": [LABEL, LABEL]}), ("tabby", 0.5)),
        (in_json({"results": [{"labels": [LABEL]}, {"error": {}}]}), ("tabby, ", 0.0)),
        (in_json({"label": "positive", "score": 0.9}), ("positive", 0.9)),
        (in_json({"outputs": [{"datatype": "FP32", "data": [0.25, 0.5]}]}), ("class 1", 0.5)),
        (in_json({"outputs": [{"datatype": "BYTES", "data": ["car"]}]}), ("car", 0.0)),
        # Of what a network that computes nonsense gives, and of a function of the user's.
        (in_json({"labels": [{**LABEL, "probability": None}]}), ("tabby", 0.0)),
        (in_json({"label": "positive", "score": None}), ("positive", 0.0)),
        (in_json({"outputs": [{"datatype": "FP32", "data": [0.25, None]}]}), ("class 0", 0.25)),
        (in_json({"outputs": [{"datatype": "BYTES", "data": ["1.2.3:4:x"]}]}), ("1.2.3:4:x", 0.0)),
        (with_tensors(("FP32", array("f", [0.5, 0.25]).tobytes())), ("class 0", 0.5)),
        (
            with_tensors(
                ("FP32", bytes(8)), ("BYTES", len(LABELLED).to_bytes(4, "little") + LABELLED)
            ),
            ("tabby: a cat", 0.75),
        ),
        (in_json({"outputs": [{"datatype": "FP32", "data": [0.25]}]}), None),
        (with_tensors(("FP32", bytes(4 * MOST_CLASSES + 4)), ("FP32", bytes(8))), ("class 0", 0.0)),
        (in_json({"outputs": []}), None),
        (Answer(b"no JSON"), None),
        (Answer(b"[" + b" " * 2_000_000 + b"]"), None),
    ],
)
def test_what_an_answer_says(answer: Answer, gist: tuple[str, float] | None) -> None:
    assert read_gist(answer.body, answer.headers) == gist


def test_what_is_kept_is_bounded() -> None:
    shadow = Shadow()
    for number in range(3 * MOST_CHANGES):
        for live in ("tabby", f"class {number}"):
            shadow.add(Compared("m", "3", DIFFERS, f"id {number}", live, "car"))
    shadow.add(Compared("m", "3", LEFT_OUT))
    told = shadow.as_json("m", "3")
    assert len(told["changes"]) == MOST_CHANGES and told["counts"][LEFT_OUT] == 1
    assert told["changes"][0]["count"] == 3 * MOST_CHANGES
    assert len(told["changes"][0]["ids"]) == MOST_EXAMPLES


def test_what_a_rollout_objects_to() -> None:
    assert Seen(same=900, differ=100).find_objection(80) is None
    assert Seen(same=3, differ=7).find_objection(80) is None  # too few to tell
    assert "requires 95% alike" in (Seen(same=900, differ=100).find_objection(95) or "")
    assert Seen(same=9, failed=1).find_objection(0) == "1 of 10 copies of requests failed"
    assert Seen().find_objection(80) is None
    assert "no request was copied: nobody asked" in Seen().describe()
    assert "3 copies were left out" in Seen(left_out=3).describe()
    assert (SAME, FAILED) == ("same", "failed")
