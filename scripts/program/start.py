"""Where the installed `triton-bundle` begins: as __init__.py of its package, whose files find
each other as in a checkout."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> int:
    sys.path[:0] = [str(ROOT / each) for each in ("", "serving", "client")]
    from scripts.program import __main__ as program

    return program.main()
