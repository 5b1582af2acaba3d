"""Goes back to the version that served before, with the same care as a rollout.

make rollback
"""

from __future__ import annotations

import sys

from scripts.errors import UserError, guarded
from scripts.host import lock
from scripts.versions import history, rollout


def main() -> int:
    with lock.one_at_a_time():
        up = rollout.found()
        previous = history.before(history.read())
        if previous is None:
            raise UserError(
                f"no version served before version {up.version.number}",
                "choose one: make rollout VERSION=…",
            )
        rollout.to(previous, "rollback", up)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
