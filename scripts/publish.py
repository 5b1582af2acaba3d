"""Makes a new version, beside the one that serves and without touching it.

    make publish [ARCH=] [WEIGHTS=] [PRECISION=] [DECODE=] …

What is not said stays as it is in the version that serves; the programs of the Python steps are
taken from model_repository/*/1. Then: make rollout.
"""

from __future__ import annotations

import sys

from scripts import up
from scripts.errors import UserError, guarded
from scripts.host import console, flavour, lock, settings, state
from scripts.versions import archive, history
from scripts.versions.shared import Shared


def main() -> int:
    wished = settings.load()
    with lock.one_at_a_time():
        known = state.load()
        shared = Shared(known.started_with if known else wished)
        shared.pull()
        serving = up.serving()
        if known is None or serving is None:
            raise UserError("no server is up, beside whose version another one could be", "make up")
        wished = wished.over(known.settings | serving.settings)
        stack = flavour.stack(known.flavour, wished)
        stack.prepare()
        version = up.made(stack, wished, serving)
        if version == serving:
            console.note(f"nothing is new: {version.describe()} serves")
            return 0
        shared.push_version(version)
        shared.record(history.PUBLISHED, version.number, "publish", version.what)
    # An earlier one that came out the same is not what a rollout takes by itself.
    newest = version.number == archive.numbers()[-1]
    then = "make rollout" if newest else f"make rollout VERSION={version.number}"
    console.note(f"published: {version.describe()}; next: {then}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
