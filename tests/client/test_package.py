"""The package as a whole: what it shows of itself, and what it brings along."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

import bundle_client
from tests.client.stand_in import StandIn

PROJECT = tomllib.loads((Path(bundle_client.__file__).parents[1] / "pyproject.toml").read_text())[
    "project"
]


def test_it_lists_what_it_has_before_any_of_it_is_used() -> None:
    assert {*bundle_client.__all__, "__version__"} <= {*dir(bundle_client)}
    assert re.fullmatch(r"\d+\.\d+\.\d+", bundle_client.__version__)


def test_what_asks_over_http_brings_little() -> None:
    assert brought(PROJECT["dependencies"]) == {"rich", "markdown-it-py", "mdurl", "pygments"}


def test_it_brings_nothing_of_cuda() -> None:
    extras = PROJECT["optional-dependencies"]
    everything = brought([*extras["http"], *extras["grpc"]])
    assert {"tritonclient", "grpcio", "aiohttp"} <= everything
    assert not {name for name in everything if re.search("cuda|nvidia|perf", name)}


# Nothing is imported that is not named here, as where nothing else is installed.
ALONE = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tritonclient", "numpy", "grpc", "aiohttp", "PIL"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Refusing())
from bundle_client import Client, ClientError
"""


def test_without_extras_it_classifies_and_names_what_else_they_bring(stand_in: StandIn) -> None:
    ask = f"""
with Client(url={stand_in.url!r}) as client:
    print(client.classify(b"a cat", top=1).labels[0].label)
    for ask in (lambda: client.sentiment("fine"), lambda: Client(protocol="grpc")):
        try:
            ask()
        except ClientError as fault:
            print(fault)
"""
    done = subprocess.run([sys.executable, "-c", ALONE + ask], capture_output=True, text=True)
    label, http, grpc = done.stdout.splitlines()
    assert label == "a cat" and "pip install './client[http]'" in http
    assert "pip install './client[grpc]'" in grpc


def brought(lines: list[str]) -> set[str]:
    return {name for line in lines for name in closure(Requirement(line))}


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
