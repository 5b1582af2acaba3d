"""Which pipeline is the main one: a server loads it first, and it is meant where none is named."""

import os
from pathlib import Path

# Where nobody says otherwise.
DEFAULT = "ensemble_python_resnet50"
VARIABLE = "MAIN_PIPELINE"
# In the repository, as far as that is a folder here.
FILE = "main.txt"


def find_main(repository: str | Path = "") -> str:
    """The name of its ensemble."""
    if name := os.environ.get(VARIABLE):
        return name
    try:
        return (Path(repository or os.environ["REPOSITORY"]) / FILE).read_text().strip() or DEFAULT
    except (OSError, KeyError, UnicodeDecodeError):
        return DEFAULT
