"""A rollout over several servers judges each before the next is replaced."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bundle_serving.address import Address
from bundle_serving.protocol import golden
from scripts.artefacts.workspace import Workspace
from scripts.repository import archive
from scripts.rollout import proofs, rollout
from scripts.rollout.counts import LOOK_S, Clients
from scripts.rollout.fleet import Fleet, FleetSwitch
from scripts.rollout.rollout import Refused
from scripts.rollout.stream import Answer, Stream
from scripts.rollout.switch import Proved, Running
from scripts.rollout.verdict import Seen
from scripts.server import up
from scripts.settings.settings import Settings
from scripts.stacks.state import State
from tests.project import wait_until

OLD, NEW = 1, 2
SERVERS = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]


class Servers:
    """With nothing behind them."""

    def __init__(self, clients: Callable[[str], Seen] = lambda server: Seen(100, 0)) -> None:
        self.old = SimpleNamespace(number=OLD, title="version 1")
        pipeline = SimpleNamespace(ensemble="pipeline", candidate="candidate", option="")
        self.new = SimpleNamespace(number=NEW, pipeline=pipeline)
        self.servers: dict[int, list[str]] = {OLD: [*SERVERS], NEW: []}
        self.turned = False
        self.shares: list[float] = []  # of clients' requests that a canary got, at last none
        self._clients = clients

    def start_beside(self, percent: float) -> None:
        self.servers[NEW] = ["beside"]

    def tell_of_candidate(self, percent: float, seconds: float) -> None:
        self.shares.append(percent)

    def end_candidate(self) -> None:
        self.shares.append(0)

    def find_live(self) -> list[Address]:
        return []

    def replace_each(self) -> Iterator[str]:
        for server in SERVERS:
            self.servers[OLD].remove(server)
            self.servers[NEW].append(f"new {server}")
            yield f"new {server}"

    def find_addresses(self, servers: list[str]) -> list[str]:
        return servers

    def read_counts(self, servers: list[str]) -> Seen:
        return sum(map(self._clients, servers), Seen(0, 0))

    def turn(self) -> None:
        self.turned = True


class Asked(Stream):
    """What a version answers each time that somebody looks."""

    def __init__(self, answers: Callable[[int], Answer]) -> None:
        super().__init__(cast(Any, None), "pipeline", [], cast(Any, None), serves=OLD)
        self._answer = answers

    def answers_since(self, mark: int) -> list[Answer]:
        known = {self.serves, *([self.candidate[1]] if self.candidate else [])}
        self._answers += [self._answer(version) for version in known for _ in range(50)]
        return super().answers_since(mark)


def well(version: int) -> Answer:
    return Answer(version, 0, 10.0, "cat")


def badly(version: int) -> Answer:
    """The new one alone."""
    return Answer(version, 0, 1.0, None if version == NEW else "cat")


def turn(
    fleet: Servers, stream: Stream, contest: Any = None, canary: float | None = None, least: int = 0
) -> str:
    settings = SimpleNamespace(watch_seconds=0.01, max_p99_ratio=2, max_drop=1)
    running = cast(Running, SimpleNamespace(settings=settings, shared=None))
    proved = cast(Proved, SimpleNamespace(answers=5 * ["cat"], contest=contest))
    return FleetSwitch(cast(Fleet, fleet), running, proved).carry_out(stream, canary, least)


class Labels:
    """Labelled data, and what it says against the new version."""

    def __init__(self, objection: str) -> None:
        self.asked: list[tuple[int, str]] = []
        self._objection = objection

    def ask(self, version: Any, model: str, only: str = "") -> Iterator[str]:
        self.asked.append((version.number, only))
        yield f"version {version.number}"

    def ask_all(self, version: Any, model: str) -> list[str]:
        return [*self.ask(version, model)]

    def note(self, *_: object) -> None:
        pass

    def judge(self, live: list[str], candidate: Iterator[str], most_drop: float) -> Any:
        assert (*live, *candidate) == ("version 1", "version 2")
        return SimpleNamespace(objection=self._objection, what="equal"), None


def test_the_first_is_judged_by_labelled_data() -> None:
    fleet, contest = Servers(), Labels("it lost wrens")
    with pytest.raises(Refused, match="it lost wrens"):
        turn(fleet, Asked(well), contest)
    assert len(fleet.servers[NEW]) == 1 and not fleet.turned
    fleet, contest = Servers(), Labels("")
    assert "all servers" in turn(fleet, Asked(well), contest)
    assert contest.asked == [(OLD, ""), (NEW, f"new {SERVERS[0]}")]


def test_each_is_judged_and_then_all_are_live() -> None:
    fleet = Servers()
    assert "all servers in" in turn(fleet, Asked(well))
    assert fleet.turned and len(fleet.servers[NEW]) == 3


def test_one_that_fails_is_the_only_one_that_was_replaced() -> None:
    fleet = Servers()
    with pytest.raises(Refused, match="requests failed") as refused:
        turn(fleet, Asked(badly))
    assert len(fleet.servers[NEW]) == 1 and len(fleet.servers[OLD]) == 2
    assert refused.value.fails and not fleet.turned


def test_a_late_one_is_the_only_one_that_was_replaced() -> None:
    fleet = Servers()
    with pytest.raises(Refused, match="MAX_P99_RATIO") as refused:
        turn(fleet, Asked(lambda version: Answer(version, 0, 100.0 * version**4, "cat")))
    assert len(fleet.servers[NEW]) == 1 and not refused.value.fails


def test_requests_of_clients_count_too() -> None:
    fleet = Servers(lambda server: Seen(40, 3 * server.startswith("new")))
    with pytest.raises(Refused, match=r"3 of 40 requests of clients failed, of the others' 0"):
        turn(fleet, Asked(well))
    assert len(fleet.servers[NEW]) == 1


def test_what_fails_everywhere_is_not_the_new_ones_fault() -> None:
    assert "all servers" in turn(Servers(lambda server: Seen(40, 3)), Asked(well))
    live = Seen(1000, 20)
    assert "10 of 10 requests" in str(Seen(10, 10).objection(live))  # fewer, but a larger share
    assert Seen(100, 3).objection(live) and not Seen(100, 2).objection(live)
    assert Seen(1, 1).objection(Seen(0, 0)) and not Seen(0, 0).objection(Seen(0, 0))


def test_a_judged_one_that_ends_is_a_refusal() -> None:
    fleet = Servers()
    replaced = fleet.replace_each

    def ends() -> Iterator[str]:
        for number, server in enumerate(replaced()):
            if number == 1:
                fleet.servers[NEW].pop(0)
            yield server

    fleet.replace_each = ends  # type: ignore[method-assign]
    with pytest.raises(Refused, match="one of its servers ended"):
        turn(fleet, Asked(well))


@pytest.mark.parametrize(
    ("is_own", "said"), [(True, "smallest request is too large for a proof"), (False, "")]
)
def test_it_is_told_that_servers_cannot_prove_themselves(
    is_own: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a borrowed network answered, they need not."""
    monkeypatch.setattr(proofs, "FOLDER", tmp_path)
    monkeypatch.setattr(archive, "HERE", tmp_path)
    (tmp_path / "1").mkdir()
    for name, number in (gone := ("birds", 7)), (stays := ("birds-of-prey", 7)):
        proofs.path(name, number).touch()
    noise = np.random.default_rng(1).bytes(proofs.MOST_BYTES + 1)
    recipe = SimpleNamespace(
        golden=lambda _: 2 * [{"INPUT": np.frombuffer(noise, np.uint8)}],
        is_own_answer=lambda _: is_own,
    )
    pipeline = SimpleNamespace(ensemble="birds", recipe=recipe, folder="")
    version: Any = SimpleNamespace(
        number=1,
        title="version 1",
        pipeline=pipeline,
        precision="fp32",
        workspace=Workspace(tmp_path),
    )
    proofs.write(version, 2 * [{"OUTPUT": np.ones((1, 3), np.float32)}])
    assert golden.load(proofs.path("birds", 1)) == []
    assert proofs.path(*stays).exists() and not proofs.path(*gone).exists()
    printed = capsys.readouterr().out
    assert said in printed and bool(said) == bool(printed)


def test_what_another_version_of_that_number_answered_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline was removed, and another one is called so; or a backup was restored."""
    monkeypatch.setattr(proofs, "FOLDER", tmp_path)
    pipeline = SimpleNamespace(ensemble="birds")
    version: Any = SimpleNamespace(pipeline=pipeline, number=1, folder=tmp_path / "1")
    (made := version.folder / "models").mkdir(parents=True)
    assert not proofs.is_there(version)
    proofs.path("birds", 1).touch()
    for at, is_its_own in ((0, True), (2**32, False)):
        os.utime(made, (at, at))
        assert proofs.is_there(version) == is_its_own


def test_a_canary_is_judged_before_any_is_replaced() -> None:
    fleet = Servers()
    with pytest.raises(Refused, match="requests failed"):
        turn(fleet, Asked(badly), canary=10)
    assert fleet.servers == {OLD: SERVERS, NEW: ["beside"]}
    assert 10 in fleet.shares and fleet.shares[-1] == 0
    fleet = Servers()
    assert "all servers" in turn(fleet, Asked(well), canary=10) and fleet.turned
    assert 10 in fleet.shares and fleet.shares[-1] == 0


def test_a_canary_that_ends_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Servers()
    monkeypatch.setattr(fleet, "end_candidate", lambda: fleet.servers.update({NEW: []}))
    with pytest.raises(Refused, match="one of its servers ended"):
        turn(fleet, Asked(well), canary=10)
    assert fleet.servers[OLD] == SERVERS


def test_another_network_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    live = iter(["dog", "cat"])
    monkeypatch.setattr(rollout, "gists", lambda _, answers: answers)
    monkeypatch.setattr(rollout, "ask_uncounted", lambda *_: 5 * [next(live)])
    fleet, stream = Servers(), Asked(well)
    stream.questions = 5 * [{}]
    with pytest.raises(Refused, match="but MIN_AGREEMENT requires 50%"):
        turn(fleet, stream, least=50)
    assert fleet.servers[OLD] == SERVERS
    assert "all servers" in turn(fleet, stream, least=50)


def test_a_request_that_fails_while_a_server_comes_is_a_refusal() -> None:
    """As where the balancer asks one that has gone."""
    fleet, stream = Servers(), Asked(well)
    replaced = fleet.replace_each

    def fail() -> Iterator[str]:
        for server in replaced():
            stream._answers.append(Answer(OLD, 0, 1.0, None))
            yield server

    fleet.replace_each = fail  # type: ignore[method-assign]
    with pytest.raises(Refused, match="3 requests failed while it came"):
        turn(fleet, stream)
    assert not fleet.turned


@pytest.mark.parametrize(("now", "scaled"), [("5", [5]), ("3", []), ("", [])])
def test_servers_that_run_already_become_as_many_as_are_wanted(now: str, scaled: list[int]) -> None:
    asked: list[int] = []
    many = SimpleNamespace(scale=lambda known, replicas: asked.append(replicas))
    known, settings = State("swarm", "", {"REPLICAS": "3"}), Settings.load({"REPLICAS": now})
    up.scale_if_wanted(cast(Any, SimpleNamespace(many=many)), known, settings)
    up.scale_if_wanted(cast(Any, SimpleNamespace(many=None)), known, settings)  # one server
    assert asked == scaled


def test_nothing_is_owed_to_a_version_that_comes_later() -> None:
    """Or it alone would be asked at first, and be compared with nothing."""
    with HTTPServer(("127.0.0.1", 0), Nobody) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = Address("127.0.0.1", server.server_port)
        stream = Stream(address, "pipeline", [{}], lambda answer: "cat", serves=OLD, share=0.5)
        with stream:
            wait_until(lambda: stream.mark() > 30, "requests before")
            mark, stream.candidate = stream.mark(), ("pipeline", NEW)
            wait_until(lambda: stream.mark() > mark + 20, "requests beside")
        asked = Counter(each.version for each in stream.answers_since(mark))
        server.shutdown()
    assert asked[OLD] > 6 and asked[NEW] > 6


def test_a_failure_counts_though_an_earlier_tries_has_left_the_minute() -> None:
    told = {"pipeline": 0, "candidate": 1}  # of which an earlier try has one

    class Door(Nobody):
        def do_GET(self) -> None:
            series = [
                {"pipeline": name, "version": str(NEW), "asked": 100, "failed": failed}
                for name, failed in told.items()
            ]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"series": series}).encode())

    with HTTPServer(("127.0.0.1", 0), Door) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = [Address("127.0.0.1", server.server_port)]
        clients = Clients(lambda: here, "pipeline", "candidate", NEW)
        objections = []
        for failed in (1, 0, 1):
            told["candidate"], clients.looked = failed, -LOOK_S
            objections.append(clients.find_objection())
        server.shutdown()
    assert objections[:2] == [None, None] and "1 of 100 requests" in (objections[2] or "")


class Nobody(BaseHTTPRequestHandler):
    """Refuses every request."""

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass
