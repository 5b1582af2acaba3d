"""A canary's share of every client's requests, without the client's doing anything."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from bundle_door.paths.candidates import ANSWERED_BY, LIVE_ONLY, SESSION_ID
from bundle_serving.process.guard import HEADER as ADMIN_KEY
from tests.door.servers import KEY, MODELS, Behind
from tests.project import wait_until

PICTURE = b"\xff\xd8 low, middling and high \xfe"
STEP = {
    "model_name": "picture",
    "model_version": -1,
    "input_map": {"INPUT": "INPUT"},
    "output_map": {"OUTPUT": "OUTPUT"},
}


def control(server: Behind, model: str, how: str, content: object) -> None:
    path = f"/v2/repository/models/{model}/{how}"
    status, _, said = server.ask("POST", path, json.dumps(content).encode(), {ADMIN_KEY: KEY})
    assert status == 200, said


@contextmanager
def loaded(server: Behind, model: str, step: str = "picture", **parameters: str) -> Iterator[None]:
    """As a rollout loads it: an ensemble of the step."""
    config = {
        "name": model,
        "platform": "ensemble",
        "max_batch_size": 16,
        "input": [{"name": "INPUT", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "output": [
            {
                "name": "OUTPUT",
                "data_type": "TYPE_FP32",
                "dims": [3],
                "label_filename": "labels.txt",
            }
        ],
        "ensemble_scheduling": {"step": [STEP | {"model_name": step}]},
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }
    labels = (MODELS / "picture" / "labels.txt").read_bytes()
    files = {
        "file:1/none": base64.b64encode(b"none").decode(),
        "file:labels.txt": base64.b64encode(labels).decode(),
    }
    control(server, model, "load", {"parameters": {"config": json.dumps(config), **files}})
    try:
        yield
    finally:
        control(server, model, "unload", {})


def classify(server: Behind, session: str, picture: bytes = PICTURE) -> tuple[int, str, str]:
    """Status, the candidate's version in the header, and the model in the answer."""
    headers = {SESSION_ID: session} if session else {}
    status, given, content = server.ask("POST", "/classify?model=shown", picture, headers)
    return status, given.get(ANSWERED_BY, ""), json.loads(content).get("model", "")


def test_every_client_takes_part_and_meets_the_same_version_again(server: Behind) -> None:
    sessions = [f"session {number}" for number in range(100)]
    with loaded(server, "shown"):
        assert classify(server, "") == (200, "", "shown")
        with loaded(server, "shown_candidate", share="30", version="7"):
            wait_until(
                lambda: any(classify(server, each)[1] for each in sessions), "the candidate's share"
            )
            first = [classify(server, each) for each in sessions]
            assert [classify(server, each) for each in sessions] == first
            assert {*first} == {(200, "", "shown"), (200, "7", "shown_candidate")}
            assert 15 < Counter(version for _, version, _ in first)["7"] < 45
            # The same over KServe's protocol, and not where a version is named.
            chosen = sessions[[version for _, version, _ in first].index("7")]
            headers = {SESSION_ID: chosen, "inference-header-content-length": "0"}
            for path, version in (("shown", "7"), ("shown/versions/1", None)):
                status, given, _ = server.ask("POST", f"/v2/models/{path}/infer", PICTURE, headers)
                assert (status, given.get(ANSWERED_BY)) == (200, version)
            headers = {SESSION_ID: chosen, LIVE_ONLY: "1"}
            status, given, _ = server.ask("POST", "/classify?model=shown", PICTURE, headers)
            assert status == 200 and ANSWERED_BY not in given
            # What the candidate refuses is the model's to refuse.
            status, version, _ = classify(server, chosen, b"not a picture")
            assert status == 400 and not version
        # It is gone, and the door may not know that yet.
        assert classify(server, chosen) == (200, "", "shown")
