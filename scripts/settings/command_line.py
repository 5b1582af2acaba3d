"""The names of the variables given to a make command: make up ARCH=resnet18.

make passes them on in MAKEFLAGS; the environment also has many variables that are not for us.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# Blanks and backslashes in a value are escaped with a backslash.
_WORD = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)
_ASSIGNED = re.compile(r"(\w+)(?:\+|\?|!|:{1,3})?=")


def list_typed(environment: Mapping[str, str] = os.environ) -> list[str]:
    _, _, words = f" {environment.get('MAKEFLAGS', '')}".partition(" -- ")
    found = (_ASSIGNED.match(word) for word in _WORD.findall(words))
    return [each[1] for each in found if each]
