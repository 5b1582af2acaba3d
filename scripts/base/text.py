"""Text from outside, made safe for a terminal. Stdlib only."""

from __future__ import annotations

import textwrap
import unicodedata


def printable(text: str) -> str:
    """Escapes control characters, which a terminal would obey; newlines stay."""
    return "".join(each if _harmless(each) else ascii(each)[1:-1] for each in text)


def fold(text: str, width: int, indent: str = "") -> str:
    """Broken between words, never within one; all lines but the first begin with the indent."""
    wrapper = textwrap.TextWrapper(
        max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def _harmless(each: str) -> bool:
    return each.isprintable() or each == "\n" or unicodedata.category(each) == "Zs"
