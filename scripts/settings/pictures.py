"""The pictures that IMG= names, or the sounds that SOUND= names, however they are quoted."""

# os.path returns False, or the text unchanged, where pathlib would raise.
# ruff: noqa: PTH110, PTH111, PTH207

from __future__ import annotations

import glob
import os.path
import shlex

from scripts.base.errors import UserError

EXAMPLES = {
    "IMG": ("picture", "IMG=photo.jpg"),
    "SOUND": ("sound", "SOUND=bell.wav"),
}
STANDARD_INPUT = "-"


def find_sources(text: str, command: str = "classify", setting: str = "IMG") -> list[str]:
    """Paths and URLs. ~ and * inside quotes are expanded as the shell would."""
    if not text:
        what, example = EXAMPLES[setting]
        raise UserError(f"no {what} given", f"try: make {command} {example}")
    whole = os.path.expanduser(text)
    if os.path.exists(whole):
        return [whole]
    try:
        words = shlex.split(text)
    except ValueError:
        raise UserError(
            f"{setting}={text} has a quote that is not closed", "close it, or check the path"
        ) from None
    found = [name for word in words for name in _matching(os.path.expanduser(word), setting)]
    if not any(map(_may_be_there, found)):  # before a server is started to be asked about them
        raise UserError(f"{setting}={text}: no such file", "check the path")
    return found


def one(text: str, command: str) -> str:
    found = find_sources(text, command)
    if len(found) != 1:
        raise UserError(f"IMG={text} names {len(found)} pictures", f"make {command} takes only one")
    return found[0]


def _may_be_there(name: str) -> bool:
    return name == STANDARD_INPUT or "://" in name or os.path.exists(name)


def _matching(word: str, setting: str) -> list[str]:
    if "://" in word or not glob.has_magic(word) or os.path.exists(word):
        return [word]
    if found := sorted(glob.glob(word, recursive=True)):
        return found
    raise UserError(f"{setting}={word} matches no file", "check the path and the pattern")
