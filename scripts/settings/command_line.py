"""What was typed behind a make command: make up ARCH=resnet18.

make passes it on in MAKEFLAGS, word for word; in the environment it has expanded every $, and made
a.jpg of a$b.jpg.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# A blank or a backslash in a value has a backslash before it, and $ is doubled.
_WORD = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)
_ASSIGNED = re.compile(r"(\w+)(?:\+|\?|!|:{1,3})?=(.*)", re.DOTALL)


def typed(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    _, _, words = f" {environment.get('MAKEFLAGS', '')}".partition(" -- ")
    found = (_ASSIGNED.fullmatch(word) for word in _WORD.findall(words))
    return {each[1]: _as_typed(each[2]) for each in found if each}


def said(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with what was typed as it was typed."""
    return {**environment, **typed(environment)}


def _as_typed(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL).replace("$$", "$")
