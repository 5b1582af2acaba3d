"""A canary's share of every client's requests, where the candidate runs on servers of its own."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from bundle_door.access import certificate
from bundle_door.access.key_file import hash_key
from bundle_door.paths.candidates import LIVE_ONLY, SESSION_ID
from bundle_door.requests import ANSWERED_BY
from bundle_door.served import TOLD
from bundle_serving.process.exposure import CERTIFICATE
from bundle_serving.process.guard import HEADER as ADMIN_KEY
from bundle_serving.process.processes import children_of, state_of
from bundle_serving.protocol import kserve
from bundle_serving.protocol.kserve import pb
from tests.door.servers import KEY, Behind, behind_the_door
from tests.door.test_candidates import loaded
from tests.project import wait_until

JPEG = b"\xff\xd8 low, middling and high \xfe"
KEYS = {"authorization": "Bearer key-of-ann"}
ADMIN = {ADMIN_KEY: KEY}
SESSIONS = [f"session {number}" for number in range(60)]


class Pair:
    """A live server, and another one with the candidate, as nobody else knows."""

    def __init__(self, live: Behind, other: Behind) -> None:
        self.live, self.other = live, other

    def tell(self, seconds: float = 60, servers: list[str] | None = None, **more: Any) -> None:
        at = [f"127.0.0.1:{self.other.grpc_port}"] if servers is None else servers
        told = {"model": "shown", "version": "7", "servers": at, "seconds": seconds, **more}
        status, said = self.post("/v2/candidates", told)
        assert status == 200, said

    def post(self, path: str, content: object) -> tuple[int, str]:
        status, _, said = self.live.ask("POST", path, json.dumps(content).encode(), ADMIN)
        return status, said.decode()

    def ask(
        self,
        session: str,
        path: str = "/classify?model=shown",
        picture: bytes = JPEG,
        only: str = "",
    ) -> tuple[int, str]:
        """Status, and the candidate's version in the header."""
        headers = {SESSION_ID: session, "inference-header-content-length": "0", only or "x": "1"}
        status, given, _ = self.live.ask("POST", path, picture, headers)
        return status, given.get(ANSWERED_BY, "")

    def ask_over_grpc(self, session: str, model: str = "shown") -> str:
        target = f"localhost:{self.live.grpc_port}"
        opened = grpc.insecure_channel(target)
        if self.live.tls:
            trusted = grpc.ssl_channel_credentials(self.live.tls.read_bytes())
            opened = grpc.secure_channel(target, trusted)
        tensor = pb.ModelInferRequest.InferInputTensor(
            name="INPUT", datatype="UINT8", shape=[1, len(JPEG)]
        )
        asked = pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[JPEG])
        with opened as channel:
            metadata = [(SESSION_ID, session), *self.live.headers.items()]
            infer = kserve.stub(channel).ModelInfer
            answer, call = infer.with_call(asked, metadata=metadata, timeout=60)
            assert len(answer.raw_output_contents[0]) == 12
            return str(dict(call.initial_metadata()).get(ANSWERED_BY, ""))

    def count(self) -> int:
        """What the other server has answered."""
        statistics = self.other.ask("GET", "/v2/models/stats", headers=ADMIN)[2]
        return sum(
            each["inference_stats"]["success"].get("count", 0)
            for each in json.loads(statistics)["model_stats"]
            if each["name"] == "shown"
        )

    def count_failed(self) -> int:
        series = json.loads(self.live.ask("GET", "/page/live.json", headers=ADMIN)[2])["series"]
        found = [each for each in series if each["pipeline"] == "shown_candidate"]
        return sum(each["failed"] for each in found)

    def find_chosen(self) -> str:
        """A session that the candidate answers, when all of the door's processes know of it."""
        chosen: list[str] = []

        def is_shared() -> bool:
            chosen.extend(each for each in SESSIONS if self.ask(each) == (200, "7"))
            return bool(chosen)

        wait_until(is_shared, "the candidate's share")
        self.wait_for(chosen[0], (200, "7"))
        return chosen[0]

    def wait_for(self, session: str, answer: tuple[int, str]) -> None:
        """Whichever process is asked."""
        wait_until(lambda: {self.ask(session) for _ in range(30)} == {answer}, str(answer))


@pytest.fixture(scope="module", params=["alone", "with TLS and keys", "of several processes"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    options, tls, headers = list[str](), None, dict[str, str]()
    if request.param == "with TLS and keys":
        certificate.ensure(folder, [])
        (folder / "api.keys").write_text(f"ann {hash_key('key-of-ann')}\n")
        options = ["--address", "127.0.0.1", "--bind", "0.0.0.0", "--tls-folder", str(folder)]
        options += ["--api-keys", str(folder / "api.keys")]
        tls, headers = folder / CERTIFICATE, KEYS
    processes = 2 if request.param == "of several processes" else 1
    runs = [folder / "live", folder / "other"]
    for run in runs:
        run.mkdir()
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOLD, "shown=6")
            live, other = (
                stack.enter_context(
                    behind_the_door(
                        run, models=["picture"], options=options, tls=tls, processes=number
                    )
                )
                for run, number in zip(runs, (processes, 1), strict=True)
            )
        for each in (live, other):
            each.headers = headers
            stack.enter_context(loaded(each, "shown"))
        yield Pair(live, other)


def test_a_session_meets_the_same_version_over_http_and_grpc(pair: Pair) -> None:
    assert {pair.ask(each) for each in SESSIONS[:5]} == {(200, "")}
    before = pair.count()
    pair.tell(share=30)
    chosen = pair.find_chosen()
    wait_until(lambda: pair.ask_over_grpc(chosen) == "7", "its share over gRPC")
    first = [pair.ask(each) for each in SESSIONS]
    assert [pair.ask(each) for each in SESSIONS] == first
    assert {*first} == {(200, ""), (200, "7")} and 8 <= first.count((200, "7")) <= 30
    for session, (_, version) in zip(SESSIONS[:10], first, strict=False):
        assert pair.ask_over_grpc(session) == version
    assert pair.count() - before >= 2 * first.count((200, "7"))
    # Over KServe's protocol too; and not where a version is named, or the live one is meant.
    assert pair.ask(chosen, "/v2/models/shown/infer") == (200, "7")
    assert pair.ask(chosen, "/v2/models/shown/versions/1/infer") == (200, "")
    assert pair.ask(chosen, only=LIVE_ONLY) == (200, "")
    # What the candidate refuses is the model's to refuse.
    assert pair.ask(chosen, picture=b"not a picture") == (400, "")
    assert not pair.count_failed()
    pair.tell(servers=[])
    pair.wait_for(chosen, (200, ""))


def test_it_is_asked_by_its_name_and_shown(pair: Pair) -> None:
    pair.tell(share=0)
    before = pair.count()
    named = "/v2/models/shown_candidate/infer", "/classify?model=shown_candidate"
    assert [pair.ask("", path) for path in named] == [(200, ""), (200, "")]
    assert pair.count() == before + 2
    told = json.loads(pair.live.ask("GET", "/page/served.json", headers=ADMIN)[2])["pipelines"]
    assert [(each["model"], each["version"], each["candidate"]) for each in told] == [
        ("shown", "6", False),
        ("shown_candidate", "7", True),
    ]
    pair.tell(servers=[])
    assert pair.ask("", named[0])[0] == 400 or pair.ask("", named[0])[0] == 404


def test_what_is_told_holds_for_a_while_only(pair: Pair) -> None:
    pair.tell(seconds=8, share=50)
    chosen = pair.find_chosen()
    pair.wait_for(chosen, (200, ""))
    assert pair.ask("", "/v2/models/shown_candidate/infer")[0] >= 400


def test_where_it_does_not_answer_the_live_version_does(pair: Pair) -> None:
    pair.tell(share=50)
    chosen = pair.find_chosen()
    stands_still = [pair.other.door.pid, *children_of(pair.other.door.pid)]
    for process in stands_still:
        os.kill(process, signal.SIGSTOP)
    try:
        # On a busy machine, one goes on until its signal's thread has its turn.
        wait_until(lambda: {*map(state_of, stands_still)} == {"T"}, "all to stand still")
        began = time.monotonic()
        assert pair.ask(chosen) == (200, "")
        assert time.monotonic() - began < 10
        wait_until(lambda: pair.count_failed() == 1, "what it did not do")
    finally:
        for process in stands_still:
            os.kill(process, signal.SIGCONT)
    # And where nobody listens.
    pair.tell(servers=["127.0.0.1:1"], share=50)
    wait_until(lambda: pair.count_failed() > 1 or pair.ask(chosen) != (200, ""), "another one")
    pair.tell(servers=[])


def test_only_the_admin_tells_and_only_what_can_be(pair: Pair) -> None:
    refused = pair.live.ask("POST", "/v2/candidates", b"{}")
    assert refused[0] == 403
    for wrong in (
        {},
        {"model": "shown", "version": "7", "share": 101},
        {"model": "shown", "version": "7", "servers": ["file:///etc/passwd"]},
        {"model": "shown", "version": "7", "seconds": 1e9},
        {"model": "shown", "version": "7", "more": 1},
    ):
        status, said = pair.post("/v2/candidates", wrong)
        assert status == 400 and "the request's JSON" in said


def test_one_server_alone_knows_of_no_others(server: Behind) -> None:
    assert server.ask("POST", "/v2/candidates", b"{}", ADMIN)[0] == 404
