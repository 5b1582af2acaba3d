"""`make up` with other settings, or another release: one server takes over from the other, and no
request is lost."""

import http.client
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bundle_client import Client
from bundle_client.errors import ClientError
from tests.plugin import require_docker
from tests.project import Project, error_lines, free_ports, picture, wait_until

CLIENTS = 4
PROGRAM = "model_repository/postprocessing/1/model.py"


@pytest.fixture(scope="module", params=["local", pytest.param("cpu", marks=pytest.mark.rare)])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exported: Path
) -> Iterator[Project]:
    if request.param == "cpu":
        require_docker()
    project = Project.copy(tmp_path_factory.mktemp("handover"), FLAVOUR=request.param)
    project.take(exported)
    try:
        project.made("up")
        yield project
    finally:
        project.end()
        project.make("clean")


@contextmanager
def asked_by_many(*ways: Callable[[], str]) -> Iterator[Counter[str]]:
    """What they got, until the block ends; each goes on by itself."""
    got: Counter[str] = Counter()
    done, lock = threading.Event(), threading.Lock()

    def go_on(ask: Callable[[], str]) -> None:
        while not done.is_set():
            try:
                answer = ask()
            except (AssertionError, OSError, http.client.HTTPException, ClientError) as fault:
                answer = repr(fault)
            with lock:
                got[answer] += 1

    threads = [threading.Thread(target=go_on, args=(way,)) for way in ways for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: got.total() > 20, "the first answers")
        yield got
        sofar = got.total()
        wait_until(lambda: got.total() > sofar + 20, "answers after it")
    finally:
        done.set()
        for thread in threads:
            thread.join()


def over_http(project: Project, photo: bytes) -> Callable[[], str]:
    """On a connection of its own, as most who come."""

    def ask() -> str:
        connection = http.client.HTTPConnection(project.http, timeout=60)
        try:
            connection.request("POST", "/classify", photo)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        finally:
            connection.close()

    return ask


def over_one_connection(project: Project, photo: bytes) -> Callable[[], str]:
    """Until the server says that it ends."""
    own = threading.local()

    def ask() -> str:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(project.http, timeout=60)
        own.connection.request("POST", "/classify", photo)
        answer = own.connection.getresponse()
        answer.read()
        return str(answer.status)

    return ask


def over_grpc(project: Project, photo: bytes) -> Callable[[], str]:
    client = Client(url=project.grpc, protocol="grpc")

    def ask() -> str:
        assert client.classify(photo).labels
        return "200"

    return ask


def test_no_request_is_lost(served: Project) -> None:
    """There, and back to the side where the first one ran; of several listeners at a port, too."""
    photo = picture()
    ways = [way(served, photo) for way in (over_http, over_one_connection, over_grpc)]
    for size, processes in (("32", "2"), ("16", "2"), ("64", "")):
        settings = {"MAX_BODY_MB": size, "DOOR_PROCESSES": processes}
        began, before = served.server_began(), served.processes()
        with asked_by_many(*ways) as got:
            output = served.made("up", **settings)
        assert "beside the one that answers" in output and "nobody is answered" not in output
        assert dict(got) == {"200": got.total()}
        assert served.server_began() != began
        assert not any(process.is_running() for process in before)
        assert "up already" in served.made("up", **settings)


def test_one_that_does_not_start_changes_nothing(served: Project) -> None:
    program = served.path / PROGRAM
    written, began = program.read_text(), served.server_began()
    live = served.path / "build/live"
    laid_out = sorted(live.rglob("*"))
    program.write_text(f"{written}\nraise RuntimeError('it does not work')\n")
    try:
        with asked_by_many(over_http(served, picture())) as got:
            refused = served.make("up")
    finally:
        program.write_text(written)
    (line,) = error_lines(refused.stderr)
    assert "the server from before serves on" in line
    assert dict(got) == {"200": got.total()}
    assert served.server_began() == began and "up already" in served.made("up")
    assert sorted(live.rglob("*")) == laid_out
    (line, *_) = [line for line in served.made("logs").splitlines() if "it does not work" in line]
    assert "refused: " in line


@pytest.mark.rare
def test_what_a_killed_make_leaves_is_put_right_by_the_next(served: Project) -> None:
    """In the midst of a hand-over, and at its end."""
    for said, settings in (
        ("starting the new server", {"MAX_BODY_MB": "48"}),
        ("ends its requests", {"MAX_BODY_MB": "49"}),
    ):
        make = served.start_make("up", **settings)
        assert make.stdout
        for line in make.stdout:
            if said in line:
                break
        wait_until(lambda: count_servers(served) == 2, "the second server")
        os.killpg(make.pid, signal.SIGKILL)
        make.communicate()
        with asked_by_many(over_http(served, picture())) as got:
            served.made("up", **settings)
        assert count_servers(served) == 1
        assert got["200"] > 0.9 * got.total()
        assert "up already" in served.made("up", **settings)


def count_servers(project: Project) -> int:
    if project.settings["FLAVOUR"] == "local":
        return len(project.processes("bundle_keeper.afresh"))
    return len(project.containers())


def test_what_has_taken_over_is_noted_whatever_interrupts(served: Project) -> None:
    history = served.path / "build/versions/history.jsonl"
    before = history.read_text()
    make = served.start_make("up", DECODE="full")
    assert make.stdout
    for line in make.stdout:
        if "ends its requests" in line:
            break
    os.killpg(make.pid, signal.SIGTERM)
    output, _ = make.communicate()
    assert make.returncode and "SIGTERM received" in output
    noted = history.read_text().removeprefix(before).splitlines()
    assert [json.loads(line)["what"] for line in noted] == ["begins", "serves"]
    assert "up already" in served.made("up", DECODE="full")
    served.made("up", DECODE="reduced")


@pytest.mark.rare
def test_where_two_cannot_be_the_silence_is_announced(tmp_path: Path, exported: Path) -> None:
    """After a trial, in containers."""
    require_docker()
    project = Project.copy(tmp_path / "containers", FLAVOUR="cpu")
    project.take(exported)
    try:
        project.made("up")
        (metrics,) = free_ports(1)
        project.settings["METRICS_PORT"] = str(metrics)
        output = project.made("up")
        tried, announced = output.index("trying the new"), output.index("nobody is answered for")
        assert tried < announced < output.index("starting the server")
        assert "it gets other ports" in output
    finally:
        project.make("clean")
