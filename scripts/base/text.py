"""Text from outside, made safe for a terminal. Stdlib only."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Escapes control characters, which a terminal would obey; newlines stay."""
    return "".join(each if _harmless(each) else ascii(each)[1:-1] for each in text)


def _harmless(each: str) -> bool:
    return each.isprintable() or each == "\n" or unicodedata.category(each) == "Zs"
