"""One module per kind of pipeline, named like the recipes' `kind`; those of the user's own are in
own/kinds/."""

from scripts.base.paths import find_own


def look_for_own() -> None:
    __path__[1:] = [str(find_own() / __name__)]


look_for_own()
