"""Writes .env.example and docs/settings.md from the settings.

python -m scripts.settings.documents
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

from scripts.base import files
from scripts.base.errors import guarded
from scripts.base.paths import ROOT
from scripts.settings.setting import of_class
from scripts.settings.settings import GROUPS, Group

EXAMPLE, PAGE = ROOT / ".env.example", ROOT / "docs" / "settings.md"

WIDTH = 100

EXAMPLE_HEAD = """\
# Settings, each with its default. Copy this file to .env and change what you want; the same names
# also work behind a command (make up ARCH=resnet18), overriding .env.
# Written by: python -m scripts.settings.documents
"""

PAGE_HEAD = """\
# Settings

Behind a command (`make up ARCH=resnet18`), in the environment, or in `.env` (a copy of
`.env.example`); the first of these that has a setting wins. Settings you omit keep the live
version's values. A name that is misspelt is refused with the nearest one, and nothing is started.

Behind a command a value is taken as typed, `$` included: `IMG='a$b.jpg'` is the file `a$b.jpg`,
though make itself would expand it.
"""


def example() -> str:
    return EXAMPLE_HEAD + "".join(_section(group) for group in GROUPS)


def _section(group: type[Group]) -> str:
    lines = ["", f"# --- {group.__doc__} ".ljust(WIDTH, "-")]
    for setting in of_class(group):
        lines += textwrap.wrap(
            setting.comment, WIDTH, initial_indent="# ", subsequent_indent="# ",
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
        lines.append(f"{setting.name}={setting.default}")
    return "\n".join(lines) + "\n"


def page() -> str:
    return PAGE_HEAD + "".join(line for group in GROUPS for line in _table(group))


def _table(group: type[Group]) -> Iterator[str]:
    yield f"\n## {group.__doc__}\n\n| setting | default | |\n|---|---|---|\n"
    for setting in of_class(group):
        default = f"`{setting.default}`" if setting.default else ""
        yield f"| `{setting.name}` | {default} | {setting.comment} |\n"


def main() -> int:
    files.write(EXAMPLE, example())
    files.write(PAGE, page())
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
