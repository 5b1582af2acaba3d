"""Whatever a program imports is installed by the layers that its make command, or the image that it
runs in, installs: this environment holds more."""

import re
import sys
from importlib import import_module

import pytest

from scripts.artefacts.step import Step
from scripts.bootstrap import SERVES
from scripts.stacks.local import LAYERS
from tests.project import ROOT, find_brought, makefiles
from tests.sources import imports
from tests.sources.imports import Reached

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] not in SERVES or not (ROOT / ".venv" / "layers" / "test").exists(),
    reason="it compares with packages that `make test` installs under Python 3.11 and 3.12",
)

# In NVIDIA's images, or in the interpreter that Triton starts.
FROM_ELSEWHERE = {"cupy", "tensorrt", "triton_python_backend_utils"}

TARGETS = [
    target
    for path in makefiles()
    for target in re.findall(r"^([a-z0-9-]+):.*##[+]? ", path.read_text(), re.MULTILINE)
]
# The images' Python has one layer and nothing else.
STEPS = [
    Reached(each.module, frozenset(LAYERS[each.place]), True)
    for path in (ROOT / "scripts" / "artefacts" / "step.py", *(ROOT / "kinds").glob("*/recipe.py"))
    for each in vars(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))).values()
    if isinstance(each, Step) and each.place in LAYERS and not each.layers
]
LAYOUT = Reached("scripts.commands.layout", frozenset({"layout"}), True)
SERVING = [
    Reached(
        ".".join(path.relative_to(ROOT / "serving").with_suffix("").parts), frozenset({"serve"})
    )
    for path in (ROOT / "serving").glob("bundle_*/**/*.py")
    if "backends" not in path.parts
] + [
    Reached(".".join(path.relative_to(ROOT).with_suffix("").parts), frozenset({"serve"}))
    for path in find_brought("*/serving/*.py")
]
# Collected by pytest, which `make check` installs without PyTorch.
CHECKED = [
    Reached(".".join(path.relative_to(ROOT).with_suffix("").parts), frozenset({"check"}))
    for folder in ("unit", "client")
    for path in (ROOT / "tests" / folder).rglob("test_*.py")
] + [
    Reached(".".join(path.relative_to(ROOT).with_suffix("").parts), frozenset({"check"}))
    for path in find_brought("*/tests/unit/test_*.py")
]


def commands() -> list[Reached]:
    return [program for program in map(imports.of_make, TARGETS) if program]


def missing(programs: list[Reached], and_run: bool = True) -> list[str]:
    _, others = imports.follow(*programs, and_run=and_run)
    assert others
    return imports.missing({each for each in others if each.name not in FROM_ELSEWHERE})


def test_every_command_imports_only_what_is_installed_for_it() -> None:
    assert len(programs := commands()) > 20
    assert missing(programs) == []


def test_every_step_does_with_the_image_that_runs_it() -> None:
    """But for psutil, which names the holder of a port to commands on the host."""
    assert [line for line in missing(STEPS) if "psutil" not in line] == []
    assert missing([LAYOUT]) == []


def test_what_serves_does_with_the_servers_image() -> None:
    assert missing(SERVING) == []


def test_what_is_brought_to_the_server_replaces_nothing_there() -> None:
    """In an image all of it lies in one folder, whose __init__.py is the server's own."""
    brought = [path.name for path in find_brought("*/serving/*.py")]
    own = {path.name for path in (ROOT / "serving" / "bundle_serving").glob("*.py")}
    assert len(brought) == len({*brought}) and not own & {*brought}


def test_the_unit_tests_do_without_pytorch() -> None:
    assert missing(CHECKED, and_run=False) == []


def test_an_import_that_only_the_tests_environment_can_is_seen() -> None:
    """As it was with types, which were imported at run time."""
    assert imports.packages_with("prometheus_client") == {"prometheus-client"}
    everywhere = imports.Import("prometheus_client", frozenset({"tools", "bench"}), "here:1")
    assert imports.missing({everywhere}) == ["here:1: prometheus_client is not in bench + tools"]
