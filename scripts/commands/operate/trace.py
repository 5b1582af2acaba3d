"""Asks about one picture and shows where the time went: client, wire, door, and each step.

make trace IMG=mug.jpg [MODEL=birds]

The request carries a `traceparent`; its trace is in the door's log, too.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from scripts.base import console
from scripts.base.errors import UserError
from scripts.measuring.one_request import ask_traced
from scripts.measuring.request_spans import draw_spans
from scripts.recipes import pipelines
from scripts.server.running import running
from scripts.settings import pictures

# What an answer of each kind calls what it found, and how much of it each has.
SHARES = {"labels": "probability", "boxes": "score", "areas": "share"}


def main() -> int:
    pipeline = pipelines.find_asked_pipeline()
    if pipeline.recipe.asked_about != "IMG":
        raise UserError(
            f"make trace asks about a picture, which {pipeline.name} does not take",
            "the times of all requests are in the log: make logs",
        )
    file = Path(pictures.one(os.environ.get("IMG", ""), "trace"))
    if not file.is_file():
        raise UserError(f"{file} is not a file", "name one: make trace IMG=photo.jpg")
    server = running(pipeline)
    trace = secrets.token_hex(16)
    answer, found = ask_traced(server.http, pipeline.ensemble, file, trace)
    console.say(f"{file}: {describe_best(answer)}")
    for line in draw_spans(found, console.out.width):
        console.say(line)
    console.say(f"trace {trace}; its line: make logs SINCE=1m | grep {trace[:8]}")
    return 0


def describe_best(answer: dict[str, Any]) -> str:
    """The first of its labels, boxes or areas, of which there may be none."""
    key, share = next(each for each in SHARES.items() if each[0] in answer)
    if not answer[key]:
        return f"no {key}"
    best = answer[key][0]
    return f"{best['label'] or best.get('index')}, {best[share]:.1%}"
