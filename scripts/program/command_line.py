"""What is typed after `triton-bundle`. Stdlib only."""

from __future__ import annotations

import difflib
import glob  # a pattern may be absolute, which pathlib does not take
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.base.errors import WrongWord
from scripts.base.paths import expand
from scripts.program.verbs import Verb

if TYPE_CHECKING:
    from scripts.settings.setting import Setting

PROGRAM = "triton-bundle"
FOLDER = "TRITON_BUNDLE_FOLDER"
HELP, VERSION, COMPLETION = "help", "version", "completion"
OWN_VERBS = {
    HELP: "List the commands of the first weeks (--all: every command), or explain one",
    VERSION: "Print the version",
    COMPLETION: "Print the completion of a shell: bash, zsh or fish",
}
OPTIONS = {
    "--folder": f"Where the bundle lies (default: {FOLDER}, or ./bundle)",
    "--json": "Lines of JSON, from what reports",
    "--help": "Explain the command",
    "--version": OWN_VERBS[VERSION],
}


@dataclass
class Call:
    verb: str
    folder: Path
    words: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def parse(typed: Iterable[str], environment: Mapping[str, str]) -> Call:
    """Whether there is such a verb, its folder has to say."""
    call = Call("", Path(environment.get(FOLDER) or "bundle"))
    words = iter(typed)
    asks_for_help = False
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--folder":
            call.folder = Path(value if equals else next(words, "") or call.folder)
        elif word in ("-h", "--help"):
            asks_for_help = True
        elif word == "--version":
            call.verb = VERSION
        elif word == "--json":
            call.settings["JSON"] = "1"
        elif word == "--all":
            call.settings["ALL"] = "1"
        elif name in OPTIONS:
            raise WrongWord(f"{name} takes no value", f"write {name} alone")
        elif word.startswith("-"):
            raise WrongWord(f"unknown option {name}", suggest(name, OPTIONS))
        elif equals:
            call.settings[name] = value
        elif call.verb in OWN_VERBS:
            call.words.append(word)
        elif call.verb:
            raise WrongWord(
                f"{word} is not a setting",
                f"write SETTING={word}; {PROGRAM} help {call.verb} names the settings",
            )
        else:
            call.verb = word
    if asks_for_help or not call.verb:
        call.words = [call.verb] if call.verb else []
        call.verb = HELP
    call.folder = expand(str(call.folder)).resolve()
    return call


def require_known(verb: str, verbs: Mapping[str, Verb]) -> None:
    known = [*verbs, *OWN_VERBS]
    if verb not in known:
        raise WrongWord(f"unknown command {verb}", suggest(verb, known))


def suggest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"{PROGRAM} help --all lists all of them"


def list_settings() -> dict[str, Setting[object]]:
    from scripts.settings import arguments, settings  # they are those of the folder that is named

    return arguments.ALL | settings.ALL


def make_absolute(name: str, value: str) -> str:
    """The command runs in the bundle's folder: files are named from here."""
    setting = list_settings()[name]
    read = setting.read(value) if value else value
    if str(read).startswith("/"):
        return str(read)
    if not setting.names_files or not value:
        return value
    if is_here(value):
        return str(absolute(value))
    if name == "SAMPLE":
        file, equals, label = value.partition("=")
        return f"{absolute(file)}{equals}{label}" if is_here(file) else value
    try:
        words = shlex.split(value)
    except ValueError:
        return value
    named = [str(absolute(word)) if is_here(word) else word for word in words]
    return value if named == words else shlex.join(named)


def is_here(word: str) -> bool:
    whole = expand(word)
    found = glob.glob(str(whole), recursive=True) if glob.has_magic(word) else []  # noqa: PTH207
    return whole.exists() or bool(found)


def absolute(word: str) -> Path:
    """Not resolved: the user knows it by this name."""
    return Path.cwd() / expand(word)


def as_makeflags(typed: Mapping[str, str]) -> str:
    """As make passes on what is typed (scripts/settings/arguments.py)."""
    words = (re.sub(r"([\\\s])", r"\\\1", f"{name}={value}") for name, value in typed.items())
    return f" -- {' '.join(words)}"
