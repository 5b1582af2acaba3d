"""Shows the server's log; in a terminal it follows the log until Ctrl-C.

make logs
"""

from __future__ import annotations

import sys

from scripts.base.errors import UserError
from scripts.stacks import flavour, state


def main() -> int:
    known = state.load()
    if known is None:
        raise UserError("no server is running", "start one: make up")
    stack = flavour.stack(known.flavour, known.started_with)
    return stack.logs(follow=sys.stdout.isatty())
