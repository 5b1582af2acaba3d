"""Words that come from elsewhere, as a terminal may show them. Stdlib only."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Control characters escaped: a terminal would obey them. Lines stay lines."""
    return "".join(each if _harmless(each) else ascii(each)[1:-1] for each in text)


def _harmless(each: str) -> bool:
    return each.isprintable() or each == "\n" or unicodedata.category(each) == "Zs"
