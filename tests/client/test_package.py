"""The package as a whole: what it shows of itself, and what it brings along."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

import bundle_client

PROJECT = tomllib.loads((Path(bundle_client.__file__).parents[1] / "pyproject.toml").read_text())[
    "project"
]


def test_it_lists_what_it_has_before_any_of_it_is_used() -> None:
    assert {*bundle_client.__all__, "__version__"} <= {*dir(bundle_client)}
    assert re.fullmatch(r"\d+\.\d+\.\d+", bundle_client.__version__)


def test_it_brings_nothing_of_cuda() -> None:
    brought = {name for line in PROJECT["dependencies"] for name in closure(Requirement(line))}
    assert {"tritonclient", "grpcio", "aiohttp", "rich"} <= brought
    assert not {name for name in brought if re.search("cuda|nvidia|perf", name)}


def closure(wanted: Requirement) -> set[str]:
    """All that pip installs for a requirement, by what the installed packages say of theirs."""
    extras = {"", *wanted.extras}
    needed = [Requirement(line) for line in requires(wanted.name) or []]
    taken = [
        each
        for each in needed
        if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    return {wanted.name, *(name for each in taken for name in closure(each))}
