"""Text, made safe for a terminal and fit for whom it is for. Stdlib only."""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata

# The program that was typed instead of make, the verbs that it has, and its folder.
CALLED_AS = "TRITON_BUNDLE_CALLED_AS"


def printable(text: str) -> str:
    """Escapes control characters, which a terminal would obey; newlines stay."""
    return "".join(each if _harmless(each) else ascii(each)[1:-1] for each in text)


def as_called(text: str) -> str:
    """Of the project's own messages only: labels and file names are the user's."""
    called = os.environ.get(CALLED_AS)
    return translate(text, *called.split(" ", 2)) if called else text


def translate(text: str, program: str, verbs: str, folder: str) -> str:
    """What is written for users of make in a checkout, for those of a program beside the folder."""
    text = re.sub(rf"\bmake (?=(?:{verbs})(?![\w-]))", f"{program} ", text)
    if folder == ".":
        return text
    below = r"(?<![\w./-])(?=(?:build|own|docs|kinds|extensions)/[\w.])|(?<![\w./-])(?=\.env\b)"
    return re.sub(below, lambda _: f"{folder}/", text)


def fold(text: str, width: int, indent: str = "") -> str:
    """Broken between words, never within one; all lines but the first begin with the indent."""
    wrapper = textwrap.TextWrapper(
        max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    lines = text.split("\n")
    return "\n".join(line if len(line) <= width else wrapper.fill(line) for line in lines)


def _harmless(each: str) -> bool:
    return each.isprintable() or each == "\n" or unicodedata.category(each) == "Zs"
