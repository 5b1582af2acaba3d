"""Writes what commands show of data that are the same each time, without a server:

python -m tests.shown bench status …

With JSON=1 in the environment, as for programs.
"""

import sys

from scripts.base import console
from scripts.settings import arguments
from tests.shown.every import find_shown


def main(names: list[str]) -> int:
    console.Form.is_json = arguments.load().json
    shown = find_shown()
    for name in names or shown:
        print(f"=== {name}", flush=True)
        shown[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
