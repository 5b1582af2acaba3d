"""How build/versions and build/live are laid out, as a number in a file of the former. It rises
with each change that an older bundle could not read; without the file, the layout is that of
bundles before it.

1   the history tells what was removed
2   a file lies among the models' folders: the history, for the door
"""

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT

NUMBER = 2
PATH = ROOT / "build" / "versions" / "layout"


def here() -> int:
    """The number of what is here; where nothing is yet, this bundle's."""
    if not PATH.exists():
        return 0 if PATH.parent.exists() and any(PATH.parent.iterdir()) else NUMBER
    if not PATH.is_file():  # for a pipe all would wait, and a device has no end
        raise UserError(f"{PATH} is no file", "remove it")
    try:
        return int(PATH.read_text())
    except ValueError:
        return 0


def write() -> None:
    if not PATH.exists() or here() != NUMBER:
        files.write(PATH, f"{NUMBER}\n")


def require_known(number: int, what: str = "the versions here") -> None:
    """A downgrade could lose what this bundle does not know of."""
    if number > NUMBER:
        raise UserError(
            f"{what} were written by a newer bundle (layout {number}, this one knows {NUMBER})",
            "use that bundle (git checkout), or restore a backup of before the upgrade",
        )
