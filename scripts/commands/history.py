"""Which version serves since when, and what became of each.

make history [MODEL=birds]
"""

from __future__ import annotations

import sys
from datetime import datetime

from scripts.base import console
from scripts.base.errors import UserError, guarded
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.server.up import brings_up
from scripts.settings import settings
from scripts.stacks import state
from scripts.storage.shared import Shared

SAID = {
    history.PUBLISHED: "is there",
    history.BEGINS: "began",
    history.SERVES: "serves",
    history.STAYED: "did not come to serve",
}


def main() -> int:
    known = state.load()
    pipeline = pipelines.asked()
    Shared(known.started_with if known else settings.load(), pipeline).pull()
    events = history.read(pipeline)
    if not events:
        raise UserError("nothing was served here yet", brings_up(pipeline))
    cut = history.cut_off(events)
    for event in events:
        if event.what != history.BEGINS or event is cut:
            note = f": {event.note}" if event.note else ""
            what = f"version {event.version} {SAID[event.what]}"
            console.out.print(f"{_here(event.time)}  {what} ({event.how}){note}", soft_wrap=True)
    if cut:
        console.note(
            f"the {cut.how} of version {cut.version} was cut off; to put it in order: "
            + brings_up(pipeline)
        )
    console.note(f"version {history.serving(events)} serves")
    return 0


def _here(time: str) -> str:
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    sys.exit(guarded(main))
