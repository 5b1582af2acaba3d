"""What its commands show, and why some need no rendering: tests/shown/every.py."""

from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from scripts.base.paths import ROOT
from tests.shown.running import KNOWN, VERSION, run

COMMANDS = "extensions.upkeep.commands"
DISK = "/mnt/disk of ann/triton-bundle"


def audit() -> None:
    flaws = {"pillow 11.0.0": ["CVE-2026-12345", "GHSA-abcd-efgh-ijkl", "PYSEC-2026-1"]}
    package = SimpleNamespace(title="pillow 11.0.0", where=["layer tools", "image server"])
    answer = SimpleNamespace(asked="2026-11-25", flaws=flaws, lacking=lambda _: 3)
    run("audit", {
        "extensions.upkeep.audit.of_layers": lambda: [package],
        f"{COMMANDS}.audit.in_images": list,
        f"{COMMANDS}.audit.ask_osv": lambda _: answer,
    })  # fmt: skip


def upgrade() -> None:
    changes = [".env: INSTANCES is called NETWORK_INSTANCES now",
               "build/versions: layout 2 becomes 3"]  # fmt: skip
    why = "the engine is checked again: OpenVINO, the processor or the check has changed"
    text = SimpleNamespace(name="sentiment", ensemble="sentiment_ensemble")
    run("upgrade", {
        "extensions.upkeep.upgrade.rewrite_files": lambda: changes,
        "extensions.upkeep.upgrade.write": lambda: None,
        "extensions.upkeep.upgrade.explain_rebuild": lambda *_: why,
        "extensions.upkeep.upgrade.restart_if_needed": lambda *_: True,
        f"{COMMANDS}.upgrade.served.serving": lambda _: VERSION,
        f"{COMMANDS}.upgrade.served.brings_up": lambda _: "make up MODEL=sentiment",
        f"{COMMANDS}.upgrade.state.load": lambda: KNOWN,
        f"{COMMANDS}.upgrade.as_it_runs": lambda _: None,
        f"{COMMANDS}.upgrade.flavour": MagicMock(),
        f"{COMMANDS}.upgrade.loaded_beside.read_loaded": list,
        f"{COMMANDS}.upgrade.pipelines.others": lambda: [text],
        f"{COMMANDS}.upgrade.up.bring_up": lambda _: KNOWN,
    })  # fmt: skip


def pack() -> None:
    with patch.dict("os.environ", TO=DISK):
        run("pack", {
            f"{COMMANDS}.pack.served": MagicMock(),
            f"{COMMANDS}.pack.files.require_new": lambda _: None,
            f"{COMMANDS}.pack.pack.write": lambda *_: ("cpu", "local"),
            f"{COMMANDS}.pack.disk.measure_occupied": lambda _: 1_234_567_890,
        })  # fmt: skip


def backup() -> None:
    saved = SimpleNamespace(keys=b"", index=SimpleNamespace(files=range(1234)))
    at = f"{COMMANDS}.backup"
    with patch.dict("os.environ", TO=str(ROOT / "LICENSE")):
        run("backup", {
            f"{at}.state.load": lambda: KNOWN,
            f"{at}.Shared": MagicMock(),
            f"{at}.pipelines.every": lambda: [VERSION.pipeline],
            f"{at}.archive.numbers": lambda _: [12],
            f"{at}.backup.save": lambda *_: saved,
            f"{at}.find_damaged": lambda _: ["version 9", "sentiment version 3"],
        })  # fmt: skip


SHOWN = {"audit": audit, "upgrade": upgrade, "pack": pack, "backup": backup}
NOTES_ALONE = {"restore": "how many files are back, and what stays"}
