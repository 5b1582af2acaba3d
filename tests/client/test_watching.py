"""What is printed of a video."""

from typing import Any

import pytest

from bundle_client.answers import Label
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
