"""Arguments of single commands, besides the settings: make classify IMG=photo.jpg TOP=3. Of both,
what is unknown or invalid is refused before a command is even imported, which takes some of them
seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from scripts.base import parts
from scripts.base.errors import WrongWord
from scripts.base.paths import DOTENV, ROOT
from scripts.settings import dotenv_file, settings
from scripts.settings.setting import (
    Setting,
    flag,
    gather,
    number,
    number_or_none,
    of_class,
    path,
    path_or,
    path_or_url,
    text,
    text_or_files,
    whole,
    whole_or_none,
)

# .env may also contain variables of Docker and Compose.
OF_OTHERS = ("COMPOSE_", "DOCKER_", "BUILDKIT_")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> float | None:
    """Seconds; None if it is not given."""
    if not text:
        return None
    number, unit = text[:-1], text[-1]
    if not (number.isascii() and number.isdigit() and len(number) < 6 and unit in UNITS):
        raise ValueError
    return float(int(number) * UNITS[unit])


def _tag(text: str) -> str:
    if text and not re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}", text):
        raise ValueError
    return text


class Arguments:
    remedy = "fix it here"

    model = text("", "The pipeline. Empty: the main one.")
    img = text_or_files("", "A picture, several in quotes, a folder, or a URL.")
    in_ = text_or_files(
        "",
        "The folder of pictures to index, or to compare with; rows for a model of tables, as CSV.",
    )
    text_ = text("", "The text to classify.")
    sound = text_or_files("", "A sound, several in quotes, a folder, or a URL.")
    video = text_or_files("", "A video: a file, the number of a camera, or an rtsp:// address.")
    live = flag("Watch a file at its own speed; frames that come too late are dropped.")
    inputs = text("", "The inputs of a function, as JSON. Empty: its example.")
    top = whole(5, "How many labels, boxes, classes or pictures to show.")
    out = path(
        "A picture or video to write, with what was found drawn in it; or a file for labels."
    )
    json = flag("Print lines of JSON: one per answer, per row of a table, per note.")

    triton_model = text("", "A model, by its name in Triton.")

    name = text("", "The name of a pipeline of yours.")
    file = path("A file with functions of yours.")
    onnx = path("Your own network, as an .onnx file.")
    from_ = text_or_files(
        "",
        "Where a network comes from: a file, a folder, timm/NAME or a name on a hub; or a backup.",
    )
    size = text("", "The height and width that it was trained for, if its file leaves them open.")
    output = text("", "Which of its outputs has the answer; scores, probabilities or multi-label.")
    pictures = text_or_files(
        "", "How it wants pictures: keys of a recipe, or a file that says them."
    )
    sample = text_or_files("", "A picture and what it shows: photo.jpg=robin.")
    trust = flag("Take a network whose file is a program, or brings code, and run it.")

    eval_ = text_or_files(
        "",
        "Labelled data: a folder with one for each class, or a list of files and labels; or none.",
    )

    canary = whole_or_none("Percentage of requests that go to the candidate first.", most=99)
    share = whole_or_none("Percentage of requests of which a shadow gets copies.", most=100)
    shadow = Setting(
        "", _duration, "a time such as 90s, 10m or 1h", "How long a rollout begins with copies."
    )
    anyway = flag(
        "Roll out even an untrained candidate, or one that hardly agrees with the live version."
    )
    version = whole_or_none("The version to switch to.")

    images = text_or_files("", "A folder of pictures to measure with.")
    quick = flag("A short run of about a minute.")
    compare = path("The results.json of an earlier run.")
    textbook = flag("Measure the textbook pipeline too.")
    draft = flag("Let the other services decode JPEGs at reduced size, as the bundle does.")
    only = text("", "Only these contenders, or packages.")
    precisions = text("", "The precisions to compare in, with commas: fp32,bf16,int8.")
    latency_ms = number_or_none(
        "The latency that 95% of the answers must meet (make tune), or 99% (make monitoring)."
    )
    minutes = number("5", "How long to search, to compare, or to copy requests, in minutes.")

    stop = flag("Stop the running server during the search.")

    add = text("", "The client that gets a key.")
    rate = number_or_none("How many requests a second it may send.")
    revoke = text("", "The client whose key is revoked.")

    follow = flag("Go on with what comes, until Ctrl-C.")
    since = Setting("", _duration, "a time such as 90s, 5m, 2h or 1d", "How far to look back.")

    new = path_or(
        ("", "1"),
        "1: compare answers with the present ones from now on; or a file to write, for functions.",
    )

    push = text("", "The registry that images are pushed to.")
    tag = Setting(
        "",
        _tag,
        "letters, digits, dots and dashes, 128 at most",
        "Their tag. Empty: the bundle's version.",
    )
    yes = flag("Do it without asking.")
    days = whole(30, "How many days reports and caches are kept.")

    to = path_or_url("A file or folder to write.")

    args = text("", "Options for pytest.")

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values


ALL: dict[str, Setting[Any]] = {
    each.name: each
    for owner in (Arguments, gather(Arguments, None, *parts.find("arguments")))
    for each in of_class(owner)
}

# Blanks and backslashes in a value are escaped with a backslash.
_WORD = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)
_ASSIGNED = re.compile(r"(\w+)(?:\+|\?|!|:{1,3})?=")


def list_typed(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the variables given to a make command, settings among them. make passes them on
    in MAKEFLAGS; the environment also has many variables that are not for us."""
    _, _, words = f" {environment.get('MAKEFLAGS', '')}".partition(" -- ")
    found = (_ASSIGNED.match(word) for word in _WORD.findall(words))
    return [each[1] for each in found if each]


def drop_name_of_wsl(environment: MutableMapping[str, str] = os.environ) -> None:
    """WSL gives every program the computer's name: it is not that of the user's network."""
    is_the_computers = environment.get("NAME", "").lower() == os.uname().nodename.lower()
    is_typed = "NAME" in list_typed(environment)
    if "WSL_DISTRO_NAME" in environment and is_the_computers and not is_typed:
        del environment["NAME"]


def load(environment: Mapping[str, str] = os.environ) -> Arguments:
    return Arguments(
        {name: environment.get(name, "").strip() or each.default for name, each in ALL.items()}
    )


def require_known(
    typed: Collection[str] | None = None,
    dotenv: Path = DOTENV,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Checks the command line and .env; the environment has many variables that are not for us."""
    require_typed(list_typed() if typed is None else typed, environment)
    written = dotenv_file.read(dotenv)
    for name in written:
        if not name.startswith(OF_OTHERS) and not _is_named_in(
            name, written.get("COMPOSE_OVERRIDE")
        ):
            _require(name, settings.ALL, " in .env")


def require_typed(typed: Collection[str], environment: Mapping[str, str]) -> None:
    known = settings.ALL | ALL
    for name in typed:
        _require(name, known, "")
        if value := environment.get(name, "").strip():
            known[name].read(value)


def list_idle(
    described: str, typed: Collection[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Arguments that were typed, and that the command's docstring does not name: they change
    nothing. Settings are not among them: commands read most of them through what they start."""
    taken = {*re.findall(r"\b[A-Z][A-Z_0-9]*\b", described), Arguments.json.name}
    own = ALL.keys() - settings.ALL.keys() - taken
    return [name for name in typed if name in own and environment.get(name, "").strip()]


def _is_named_in(name: str, override: str | None) -> bool:
    """Variables that the user's own Compose file takes from .env."""
    try:
        return bool(override) and name in (ROOT / str(override)).read_text()
    except (OSError, ValueError):  # not there, or no text
        return False


def _require(name: str, known: Collection[str], where: str) -> None:
    if name in known:
        return
    import difflib  # only for misspelt names

    near = difflib.get_close_matches(name.upper(), known, n=1)
    if name in dotenv_file.RENAMED:
        remedy = f"it is called {dotenv_file.RENAMED[name]} now; make upgrade renames it in .env"
    elif name in ALL:
        remedy = f"give it to a command: {name}=…"
    elif near:
        remedy = f"did you mean {near[0]}?"
    else:
        remedy = "docs/settings.md lists all of them"
    raise WrongWord(f"unknown setting {name}{where}", remedy)
