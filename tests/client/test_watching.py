"""How a video is watched."""

import random
from typing import Any

import numpy as np
import pytest

from bundle_client.answers import Label
from bundle_client.frames import Sequence
from bundle_client.server import server
from bundle_client.watching import AFRESH, OneLine


def test_one_line_of_a_terminal_has_whole_labels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    labels = [Label(n, name, 0.5 / (n + 1)) for n, name in enumerate(("mug", "cup", "teapot"))]
    frame: Any = type("Frame", (), {"seconds": 62.5})
    watched: Any = type("Watched", (), {"labels": labels})
    OneLine()(frame, watched)
    assert capsys.readouterr().out == f"{AFRESH} 1:02.5  mug 50.00%, cup 25.00%"


class Stub:
    """A stream over gRPC that answers at once."""

    opened = 0

    def start_stream(self, callback: Any, headers: Any) -> None:
        Stub.opened += 1
        self.callback, self.has_ended = callback, False

    def end(self) -> None:
        self.has_ended = True
        self.callback(None, RuntimeError("the server is stopping"))

    def async_stream_infer(self, **asked: Any) -> None:
        if self.has_ended:
            raise RuntimeError("The stream is no longer in valid state")
        answer = {"OUTPUT": np.array([b"0.5:1:mug"]), "FRAMES": np.array([1])}
        self.callback(type("Answer", (), {"as_numpy": lambda self, name: answer[name]})(), None)

    def stop_stream(self, cancel_requests: bool) -> None: ...

    def close(self) -> None: ...


def test_a_stream_that_ended_between_two_frames_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bundle_client.frames.load", lambda protocol: None)
    monkeypatch.setattr("bundle_client.frames.question", lambda *given: {})
    monkeypatch.setattr("bundle_client.frames.over_grpc", lambda tensors, server: Stub())
    sequence = Sequence(server("localhost:1", "grpc", 1), "video", 5)
    assert sequence.ask(b"one") == ((Label(1, "mug", 0.5),), 1)
    sequence._stub.end()
    assert sequence.ask(b"two") == ((Label(1, "mug", 0.5),), 1)
    assert Stub.opened == 2


def test_two_programs_with_one_seed_have_streams_of_their_own() -> None:
    numbers = set()
    for _ in range(2):
        random.seed(42)
        numbers.add(Sequence(server("localhost:1", "grpc", 1), "video", 5)._number)
    assert len(numbers) == 2
