"""Requests are asked again at their own times, and what became of them is told beside what was."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from unittest.mock import MagicMock, Mock

import pytest

from bundle_door.requests import Note
from bundle_door.watching.request_log import RequestLog
from bundle_serving.address import Address
from extensions.capture import replaying
from extensions.capture.commands import replay as command
from extensions.capture.kept import name_file, name_folder
from extensions.capture.replaying import Compared, Past, Present, ask_instead, read_log, replay
from scripts.artefacts.picture import mug
from scripts.base.errors import UserError
from scripts.server.triton.triton_api import Missing


class Answering(BaseHTTPRequestHandler):
    """Calls everything a dog, and refuses what has no bytes."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[float, str, bytes, str | None]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        length = self.headers["inference-header-content-length"]
        self.seen.append((time.monotonic(), self.path, body, length))
        content = json.dumps({"labels": [{"label": "dog", "probability": 0.9}]}).encode()
        self.send_response(200 if body else 400)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering() -> Iterator[Address]:
    Answering.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Address("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def past(id: str, at: float, content: bytes = b"x", path: str = "/classify", **more: str) -> Past:
    return Past(id, at, path, lambda: content, ms=20.0, **more)  # type: ignore[arg-type]


def test_requests_come_at_their_times_and_are_compared() -> None:
    head = '{"inputs": []}'
    pasts = [
        past("one", 100.0, label="dog"),
        past("two", 100.4, label="cat", path="/v2/models/m/infer", head=head),
        past("three", 100.8, b"", label="cat"),
    ]
    gone = replace(past("four", 100.9), read=Mock(side_effect=Missing("Not Found", "")))
    with answering() as address:
        began = time.monotonic()
        asked, presents = replay([*pasts, gone], address, 2, lambda _: None)
    assert asked == pasts
    _, (second, *about), (third, *_) = Answering.seen
    assert second - began > 0.199 and third - began > 0.399  # and no sooner
    assert about == ["/v2/models/m/infer", head.encode() + b"x", str(len(head))]
    compared = Compared(pasts, presents, {"one": "Dog", "two": "cat"})
    rows = {name: (then, now) for name, then, now in compared.list_rows()}
    assert rows["answered"] == ("3", "2") and rows["refused"] == ("0", "1")
    assert rows["right"] == ("100.0%", "50.0%")
    told = "\n".join(compared.list_notes())
    assert "1 of 2 labels changed" in told and "1 times dog, not cat, as in two" in told
    assert "1 times: HTTP 400" in told


@pytest.mark.parametrize(
    "label", ["church/outdoor", "class 7", "Song_Thrush", "tench (untrained weights)"]
)
def test_a_label_is_right_by_the_folder_it_was_copied_to(label: str) -> None:
    asked = past("shop:photo/3", 100.0, label=label)
    labels = {name_file(asked.id): name_folder(label)}
    rows = Compared([asked] * 2, [Present(1, label), Present(1, "another")], labels).list_rows()
    assert rows[-1] == ("right", "100.0%", "50.0%")


def test_nobody_who_answers_is_told() -> None:
    _, (gone,) = replay([past("one", 1.0)], Address("127.0.0.1", 1), 1, lambda _: None)
    assert "refused" in gone.fault


def test_somebody_looks_after_the_server_between_two_requests() -> None:
    """Hours may lie between them, in which its keeper leaves it alone."""

    def look(count: int) -> None:
        if count == 1:
            raise UserError("the live version does not answer", "")

    began = time.monotonic()
    with pytest.raises(UserError, match="does not answer"), answering() as address:
        replay([past("1", 0), past("2", 3600)], address, 1, look)
    assert time.monotonic() - began < 60


def test_somebody_looks_after_it_while_the_last_ones_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a server that has hung up in all but name, nobody waits for what was not begun."""
    monkeypatch.setattr(replaying, "TIMEOUT_S", 1)
    monkeypatch.setattr(replaying, "LOOK_S", 0.01)
    monkeypatch.setattr(replaying, "TOGETHER", 1)
    told, pasts = list[int](), [past(str(number), 0) for number in range(60)]

    def look(count: int) -> None:
        told.append(count)
        if told.count(len(pasts)) == 3:
            raise UserError("the live version does not answer", "")

    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(*silent.getsockname())
        with pytest.raises(UserError, match="does not answer"):
            replay(pasts, address, 1, look)
    assert time.monotonic() - began < 30


def test_a_connection_that_ended_while_idle_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = property(lambda _: True, lambda *_: None)  # after each answer, which does not say so
    monkeypatch.setattr(Answering, "close_connection", ended, raising=False)
    pasts = [past(str(number), number * 0.3) for number in range(3)]
    with answering() as address:
        _, presents = replay(pasts, address, 1, lambda _: None)
    assert [each.fault for each in presents] == ["", "", ""]


def test_another_version_is_asked_what_its_pipeline_was(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Mock(return_value=Mock(candidate="birds_candidate"))
    monkeypatch.setattr(command, "InPlace", switch)
    monkeypatch.setattr(command, "rollout", Mock())
    monkeypatch.setattr(command, "lock", MagicMock())
    tried = MagicMock()
    monkeypatch.setattr(command, "tried_beside", tried)
    asked_for = Mock(ensemble="birds")
    monkeypatch.setattr("scripts.recipes.pipelines.find_asked_pipeline", lambda: asked_for)
    owls, birds = past("1", 0, pipeline="owls"), past("2", 0, pipeline="birds")
    with command.load_beside(3, [owls, birds]) as (asked, look):
        assert asked == [replace(birds, path="/classify?model=birds_candidate")]
        assert look is switch.return_value.require_well
    assert tried.call_args.args[1] == "replay"
    with pytest.raises(UserError, match="no request of birds"), command.load_beside(3, [owls]):
        pass
    with command.load_beside(None, [owls, birds]) as (asked, _):
        assert asked == [owls, birds]


def test_another_model_is_asked_the_same() -> None:
    kserve = ask_instead(past("1", 0, path="/v2/models/m/infer", pipeline="m"), "m_candidate")
    assert kserve.path == "/v2/models/m_candidate/infer"
    plain = ask_instead(past("1", 0, path="/classify?top=3&model=m"), "m_candidate")
    assert plain.path == "/classify?top=3&model=m_candidate"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_of_the_doors_is_read(form: str, tmp_path: Path) -> None:
    mug().save(tmp_path / "mug.png")
    lines: list[bytes] = []
    log = RequestLog(form, lines.append)
    for path, status in (("/classify", 200), ("/v2/models/m/infer", 503), ("/v2", 200)):
        log.log_answer(
            "POST", path, Note("an id", pipeline="m" * (path != "/v2")), status, 10**7, 9
        )
    (tmp_path / "log.txt").write_bytes(b"another line\n" + b"".join(lines))
    first, second = read_log(tmp_path / "log.txt", tmp_path)
    assert (first.path, first.ms, first.is_refused) == ("/classify?model=m", 10.0, False)
    assert (second.path, second.is_refused) == ("/v2/models/m/infer", True)
    assert first.pipeline == second.pipeline == "m"
    assert first.id == "an id" and first.read().startswith(b"\x89PNG")
    shown = (tmp_path / "log.txt").read_text().replace(" door: ", " door   ")  # by make logs
    (tmp_path / "log.txt").write_text(shown)
    assert len(read_log(tmp_path / "log.txt", tmp_path)) == 2
    (tmp_path / "log.txt").write_text("nothing\n")
    with pytest.raises(UserError, match="has no requests"):
        read_log(tmp_path / "log.txt", tmp_path)
