"""Which labelled data belongs to a pipeline, and how right its versions were on it."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.share import Share
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive
from scripts.settings import arguments
from scripts.settings.setting import absolute

# Beside the history. A path of this machine's, which others cannot use.
NAME = "labelled.json"
WITHOUT = "none"
# Where labels are written in the order of a network's classes.
ORDERED = ROOT / "build" / "eval"


def find_data(pipeline: Pipeline) -> Path | None:
    """What EVAL= names, or named before."""
    given = arguments.load().eval_
    if given:
        return None if given == WITHOUT else absolute(given)
    try:
        known = Path(json.loads((archive.home(pipeline) / NAME).read_text())["data"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{archive.home(pipeline) / NAME} cannot be read", "name the labelled data: EVAL=folder"
        ) from None
    if not known.exists():
        raise UserError(
            f"the labelled data at {known} is gone",
            f"name it again: EVAL=folder, or do without: EVAL={WITHOUT}",
        )
    return known


def remember(pipeline: Pipeline, data: Path) -> None:
    """Later commands find it without EVAL=."""
    files.write(archive.home(pipeline) / NAME, json.dumps({"data": str(data)}) + "\n")


def require_given() -> None:
    """That what EVAL= names is there, before anything is started."""
    given = arguments.load().eval_
    if given not in ("", WITHOUT) and not absolute(given).exists():
        raise UserError(f"there is no labelled data at {absolute(given)}", "name it: EVAL=folder")


def remember_given(pipeline: Pipeline) -> None:
    if arguments.load().eval_ and (data := find_data(pipeline)):
        remember(pipeline, data)


def describe(found: dict[str, Any]) -> str:
    """Of a version's record."""
    when = datetime.fromisoformat(found["when"]).astimezone().strftime("%Y-%m-%d %H:%M")
    if name := found.get("figure"):  # of a kind whose answers are no classes
        from scripts.evaluation.figures import Interval  # which loads numpy

        figure = Interval(found["value"], found["low"], found["high"])
        return f"{name} {figure} on {found['of']:,} of {found['data']}, {when}"
    share = Share(found["right"], found["of"])
    return f"{share} right on {share.of:,} of {found['data']}, {when}"
