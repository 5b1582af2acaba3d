"""A canary's share of every client's requests, without the client's doing anything."""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bundle_door.access.keys import charge_once
from bundle_door.paths.candidates import (
    ANSWER_S,
    LEAST_S,
    LIVE_ONLY,
    SESSION_ID,
    is_chosen,
)
from bundle_door.requests import ANSWERED_BY, Note, Request
from bundle_door.served import Candidate
from bundle_serving.address import Address
from bundle_serving.process import keeper_notes
from bundle_serving.process.guard import HEADER as ADMIN_KEY
from bundle_serving.protocol import kserve
from bundle_serving.protocol.kserve import pb
from scripts.rollout.counts import Clients
from scripts.rollout.shadow import Seen
from tests.door.servers import KEY, MODELS, Behind
from tests.project import wait_until

# The door's own, for an answer.
TIMEOUT_S = 60
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


@contextmanager
def over_grpc(server: Behind) -> Iterator[Any]:
    """Asks as `classify` does, in a message of its own."""
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        triton = kserve.stub(channel)

        def ask(
            session: str, picture: bytes = PICTURE, seconds: float = 60, **more: str
        ) -> tuple[str, str]:
            """The candidate's version in the header, and the model in the answer."""
            tensor = pb.ModelInferRequest.InferInputTensor(
                name="INPUT", datatype="UINT8", shape=[1, len(picture)]
            )
            asked = pb.ModelInferRequest(
                model_name=more.pop("model", "shown"),
                model_version=more.pop("version", ""),
                inputs=[tensor],
                raw_input_contents=[picture],
            )
            headers = [*more.items(), *([(SESSION_ID, session)] if session else [])]
            answer, call = triton.ModelInfer.with_call(asked, metadata=headers, timeout=seconds)
            given = dict(call.initial_metadata())
            assert len(answer.raw_output_contents[0]) == 12
            return str(given.get(ANSWERED_BY, "")), answer.model_name

        yield ask


def wait_for_its_share(server: Behind, sessions: Sequence[str], version: str) -> str:
    """Until the door knows of the candidate: a session that is sent there."""
    chosen: list[str] = []

    def is_shared() -> bool:
        chosen.extend(each for each in sessions if classify(server, each)[1] == version)
        return bool(chosen)

    wait_until(is_shared, "the candidate's share")
    return chosen[0]


def count_failed(server: Behind, version: str) -> int:
    """Of the candidate, as a rollout reads it."""
    series = json.loads(server.ask("GET", "/page/live.json")[2])["series"]
    of_it = ("shown_candidate", version)
    return sum(each["failed"] for each in series if (each["pipeline"], each["version"]) == of_it)


SESSIONS = [f"session {number}" for number in range(100)]


def test_every_client_takes_part_and_meets_the_same_version_again(server: Behind) -> None:
    with loaded(server, "shown"):
        assert classify(server, "") == (200, "", "shown")
        with loaded(server, "shown_candidate", share="30", version="7"):
            wait_for_its_share(server, SESSIONS, "7")
            first = [classify(server, each) for each in SESSIONS]
            assert [classify(server, each) for each in SESSIONS] == first
            assert {*first} == {(200, "", "shown"), (200, "7", "shown_candidate")}
            assert 15 < Counter(version for _, version, _ in first)["7"] < 45
            # The same over KServe's protocol, and not where a version is named.
            chosen = SESSIONS[[version for _, version, _ in first].index("7")]
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
            assert not count_failed(server, "7")
        # It is gone, and the door may not know that yet.
        assert classify(server, chosen) == (200, "", "shown")
        assert not count_failed(server, "7")


def test_over_grpc_a_session_meets_the_same_version(server: Behind) -> None:
    """As over HTTP; and nothing else of a message changes."""
    seventeenth = {"share": "30", "version": "17"}
    with over_grpc(server) as ask, loaded(server, "shown"):
        assert ask("") == ("", "shown")
        with loaded(server, "shown_candidate", **seventeenth):
            chosen = wait_for_its_share(server, SESSIONS, "17")
            wait_until(lambda: ask(chosen) == ("17", "shown_candidate"), "its share over gRPC")
            for session in SESSIONS[:30]:
                _, version, model = classify(server, session)
                assert ask(session) == (version, model)
            assert ask(chosen, version="1") == ("", "shown")
            assert ask(chosen, **{LIVE_ONLY: "1"}) == ("", "shown")
            assert ask(chosen, model="picture") == ("", "picture")
            for told, code, why in (
                ({"picture": b"not a picture"}, grpc.StatusCode.INVALID_ARGUMENT, "not a JPEG"),
                ({"model": "none"}, grpc.StatusCode.NOT_FOUND, "unknown model: 'none'"),
                ({"version": "x"}, grpc.StatusCode.INVALID_ARGUMENT, "model version"),
            ):
                with pytest.raises(grpc.RpcError, match=why) as refusal:
                    ask(chosen, **told)
                assert refusal.value.code() == code
            coming = server.run_dir / keeper_notes.COMING
            coming.write_text('["none"]')
            with pytest.raises(grpc.RpcError) as waited:
                ask(chosen, model="none", seconds=2)
            assert waited.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            coming.unlink()
            assert not count_failed(server, "17")
            wait_until(lambda: count_asked(server, "17", "grpc") > 1, "its requests in metrics")
        # It is gone, and the door may not know that yet.
        assert ask(chosen) == ("", "shown")
        assert not count_failed(server, "17")


def count_asked(server: Behind, version: str, protocol: str) -> float:
    """Of the candidate, in /metrics."""
    metrics = server.ask("GET", "/metrics", connection=server.connection(server.metrics_port))[2]
    head = f'bundle_request_duration_seconds_count{{pipeline="shown_candidate",version="{version}"'
    return sum(
        float(line.split()[-1])
        for line in metrics.decode().splitlines()
        if line.startswith(head) and f'protocol="{protocol}"' in line
    )


def test_nobody_waits_long_for_a_candidate(server: Behind, tmp_path: Path) -> None:
    """The live version answers, and what the candidate did not do is told."""
    goes_on = tmp_path / "goes on"
    picture = PICTURE + str(goes_on).encode()
    control(server, "stuck", "load", {})
    eighth = {"share": "50", "version": "8"}
    with loaded(server, "shown"), loaded(server, "shown_candidate", "stuck", **eighth):
        goes_on.touch()
        chosen = wait_for_its_share(server, SESSIONS[:9], "8")
        assert classify(server, chosen, picture) == (200, "8", "shown_candidate")
        here = [Address(server.host, server.http_port)]
        clients = Clients(lambda: here, "shown", "shown_candidate", 8)
        assert clients.find_objection() is None
        clients.looked = 0.0
        goes_on.unlink()
        began = time.monotonic()
        assert classify(server, chosen, picture) == (200, "", "shown")
        waited = time.monotonic() - began
        assert LEAST_S <= waited < TIMEOUT_S
        assert count_failed(server, "8") == 1
        assert "1 of " in (clients.find_objection() or "")
        # And then it is left alone for a while.
        assert classify(server, chosen, picture) == (200, "", "shown")
        assert count_failed(server, "8") == 1
        goes_on.touch()


def test_over_grpc_neither(server: Behind, tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    picture = PICTURE + str(goes_on).encode()
    control(server, "stuck", "load", {})
    eighteenth = {"share": "50", "version": "18"}
    with (
        over_grpc(server) as ask,
        loaded(server, "shown"),
        loaded(server, "shown_candidate", "stuck", **eighteenth),
    ):
        goes_on.touch()
        chosen = wait_for_its_share(server, SESSIONS[:9], "18")
        wait_until(lambda: ask(chosen, picture)[0] == "18", "its share over gRPC")
        goes_on.unlink()
        assert ask(chosen, picture) == ("", "shown")
        wait_until(lambda: count_failed(server, "18") == 1, "what it did not do")
        assert ask(chosen, picture) == ("", "shown")
        goes_on.touch()


def test_a_key_or_an_address_always_meets_the_same_version() -> None:
    candidate = Candidate("shown_candidate", "7", 10)

    def is_sent(**told: str) -> bool:
        note = Note("", client=told.pop("client", ""))
        return is_chosen(Request("POST", "/", told, note=note), candidate)

    addresses = [f"10.0.{number // 256}.{number % 256}" for number in range(2000)]
    forwarded = "x-forwarded-for"
    sent = [address for address in addresses if is_sent(**{forwarded: address})]
    assert 150 < len(sent) < 250
    for address in sent:  # through whichever balancer
        assert is_sent(**{forwarded: f"{address}, 192.0.2.1"})
    keys = [f"key {number}" for number in range(2000)]
    assert 150 < sum(is_sent(client=key, **{forwarded: sent[0]}) for key in keys) < 250
    session = {SESSION_ID: next(key for key in keys if not is_sent(**{SESSION_ID: key}))}
    assert not is_sent(client="ann", **session, **{forwarded: sent[0]})


def test_a_form_is_charged_once_however_often_it_is_tried() -> None:
    charged = []

    class Keys:
        def charge(self, client: str, more: int) -> None:
            charged.append((client, more))

    note = Note("", client="ann")
    for more in (3, 3, 0):
        charge_once(Keys(), note, more)
    assert charged == [("ann", 3)]


def test_copies_go_to_the_candidate_and_nobody_notices(server: Behind, tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    picture = PICTURE + str(goes_on).encode()
    control(server, "stuck", "load", {})
    shadow = {"share": "0", "shadow": "100", "version": "9"}

    def count_copies() -> dict[str, int]:
        told = json.loads(server.ask("GET", "/v2/shadows", headers={ADMIN_KEY: KEY})[2])
        return next((each["counts"] for each in told if each["version"] == "9"), {})

    with loaded(server, "shown"), loaded(server, "shown_candidate", "stuck", **shadow):
        wait_until(lambda: classify(server, "") and count_copies(), "a copy")
        before = asked_so_far(server)
        began = time.monotonic()
        answers = [classify(server, "", picture) for _ in range(5)]
        assert answers == [(200, "", "shown")] * 5
        assert time.monotonic() - began < ANSWER_S  # though the candidate does not answer
        goes_on.touch()
        wait_until(lambda: count_copies().get("differs", 0) >= 4, "the copies")
        told = json.loads(server.ask("GET", "/v2/shadows", headers={ADMIN_KEY: KEY})[2])
        (change,) = told[0]["changes"]
        assert change["live"] != change["candidate"] and len(change["ids"]) >= 4
        assert asked_so_far(server) == before + 5
        (shown,) = json.loads(server.ask("GET", "/page/live.json")[2])["shadows"]
        assert shown["most"] == [change["live"], change["candidate"]]
        metrics = server.ask("GET", "/metrics", connection=server.connection(server.metrics_port))[
            2
        ].decode()
        assert 'bundle_shadow_copies_total{pipeline="shown_candidate",version="9"' in metrics


def test_copies_of_what_comes_over_grpc(server: Behind) -> None:
    control(server, "broken", "load", {})
    shadow = {"share": "0", "shadow": "100", "version": "19"}
    with (
        over_grpc(server) as ask,
        loaded(server, "shown"),
        loaded(server, "shown_candidate", "broken", **shadow),
    ):
        wait_until(lambda: classify(server, "") and read_seen(server, 19).copies, "a copy")
        before = read_seen(server, 19)

        def is_found() -> bool:
            for level in (0, 200):
                assert ask("", b"\xff" + bytes([level]) * 99) == ("", "shown")
            seen = read_seen(server, 19)
            return seen.differ > before.differ and seen.same > before.same

        wait_until(is_found, "copies of both")
        (change,) = read_seen(server, 19).changes
        assert (change["live"], change["candidate"]) == ("class 2", "class 0")


def read_seen(server: Behind, version: int) -> Seen:
    """As `make shadow` reads it."""
    told = json.loads(server.ask("GET", "/v2/shadows", headers={ADMIN_KEY: KEY})[2])
    return next((Seen.parse(each) for each in told if each["version"] == str(version)), Seen())


def test_a_class_that_is_broken_is_found_from_copies(server: Behind) -> None:
    """Though two thirds of all answers are alike."""
    control(server, "broken", "load", {})
    shadow = {"share": "0", "shadow": "100", "version": "10"}
    pictures = [b"\xff" + bytes([level]) * 99 for level in (0, 100, 200)]
    with loaded(server, "shown"), loaded(server, "shown_candidate", "broken", **shadow):
        wait_until(lambda: classify(server, "") and read_seen(server, 10).copies, "a copy")

        def is_certain() -> bool:
            for picture in pictures:
                classify(server, "", picture)
            seen = read_seen(server, 10)
            return seen.differ > 10 and bool(seen.find_objection(least_percent=99))

        wait_until(is_certain, "certainty")
        seen = read_seen(server, 10)
        (change,) = seen.changes
        assert (change["live"], change["candidate"], change["count"]) == (
            "high",
            "low",
            seen.differ,
        )
        assert change["ids"] and not seen.failed and seen.same > seen.differ
        assert "of the answers differ" in (seen.find_objection(99) or "")
        assert seen.find_objection(50) is None


def test_a_candidate_that_ends_hurts_nobody(server: Behind) -> None:
    """Not the request that it was asked a copy of, and none after it."""
    control(server, "broken", "load", {})
    shadow = {"share": "0", "shadow": "100", "version": "11"}
    with loaded(server, "shown"), loaded(server, "shown_candidate", "broken", **shadow):
        wait_until(lambda: classify(server, "") and read_seen(server, 11).copies, "a copy")
        assert classify(server, "", b"\xffend" + bytes(99)) == (200, "", "shown")

        def is_seen() -> bool:
            assert classify(server, "") == (200, "", "shown")
            return read_seen(server, 11).failed > 1

        wait_until(is_seen, "copies that failed")
        assert "copies of requests failed" in (read_seen(server, 11).find_objection(0) or "")
    control(server, "broken", "load", {})  # as nothing had happened


def asked_so_far(server: Behind) -> int:
    """Of all pipelines, as the page counts."""
    series = json.loads(server.ask("GET", "/page/live.json")[2])["series"]
    return sum(each["asked"] for each in series)
