"""What its commands show: tests/shown/every.py."""

from unittest.mock import patch

from extensions.capture.kept import Kept
from extensions.capture.replaying import Past, Present
from tests.shown.running import MODELS, PIPELINE, run

COMMANDS = "extensions.capture.commands"
RECORDS = [{"time": f"2026-11-{day}T10:30:00+00:00", "version": "12", "pipeline": name}
           for day in (24, 25) for name in MODELS]  # fmt: skip


def captured() -> None:
    kept = Kept(RECORDS, lambda _: b"")
    run("captured", {f"{COMMANDS}.captured.Kept.find": lambda *_: kept})


def replay() -> None:
    labels = ("television, television system", "song thrush")
    pasts = [Past(f"6f1c0000-{number}", number, f"/classify?model={PIPELINE}", bytes, 31.2,
                  label=labels[0]) for number in range(1234)]  # fmt: skip
    presents = [Present(29.5, labels[number % 50 == 0], "" if number % 99 else "HTTP 503")
                for number in range(1234)]  # fmt: skip
    with patch.dict("os.environ", URL="gpu-1.example:8000"):
        run("replay", {
            f"{COMMANDS}.replay.read": lambda *_: pasts,
            f"{COMMANDS}.replay.ask": lambda *_: (pasts, presents),
        })  # fmt: skip


SHOWN = {"captured": captured, "replay": replay}
