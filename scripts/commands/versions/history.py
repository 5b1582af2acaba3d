"""Shows which version was live when, and what happened to each.

make history [MODEL=birds]
"""

from dataclasses import asdict
from datetime import datetime

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.repository.shared import Shared
from scripts.server.served import brings_up, explain_cut_off
from scripts.stacks import state


def main() -> None:
    pipeline = pipelines.find_asked_pipeline()
    if not lock.find_holder(lock.OF_CHANGES):  # it has pulled, and may write what that overwrites
        Shared(state.settings_in_use(), pipeline).pull()
    events = history.read(pipeline)
    if not events:
        raise UserError("nothing has been served here yet", f"start it: {brings_up(pipeline)}")
    cut = history.cut_off(events)
    for event in events:
        if event.what != history.BEGINS or event is cut:
            when = f"{datetime.fromisoformat(event.time).astimezone():%Y-%m-%d %H:%M:%S}  "
            said = f"{when}{history.describe(event)}"
            console.say(said, indent=" " * len(when), **asdict(event))
    if cut:
        console.note(explain_cut_off(pipeline, cut))
    live = history.serving(events)
    console.note(f"version {live} is live", live=live)
