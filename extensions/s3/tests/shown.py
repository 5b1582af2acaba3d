"""What its commands show, and why two need no rendering: tests/shown/every.py."""

from contextlib import nullcontext

from extensions.s3.access import Access, Keys
from extensions.s3.location import parse
from scripts.settings.settings import DEFAULTS, Settings
from tests.shown.running import run

BUCKET = parse("s3://https://storage.example.org:9000/birds/production")


def s3_check() -> None:
    """One key for all, and one for each."""
    keys = [Keys(whose, f"AKIA{n}EXAMPLEKEY", "", "", "")
            for n, whose in enumerate(("your key", "the server's key"))]  # fmt: skip
    operator, server = (Access(BUCKET, each, Settings(DEFAULTS)) for each in keys)
    check = "extensions.s3.check"
    for of_server in (operator, server):
        run("s3-check", {
            "extensions.s3.commands.s3_check.from_settings": lambda _: BUCKET,
            f"{check}.Access.of_operator": lambda *_: operator,
            f"{check}.Access.of_server": lambda *_, found=of_server: found,
            f"{check}.explain_faults": lambda *_: nullcontext(),
            f"{check}._list_and_read": lambda *_: None,
            f"{check}._change": lambda *_: None,
            f"{check}._require_read_only": lambda *_: None,
            f"{check}._first": lambda *_: None,
        })  # fmt: skip


SHOWN = {"s3-check": s3_check}
ELSEWHERE = {
    "s3-up": "lines to copy, which must not be broken",
    "s3-down": "a note that it is stopped",
}
