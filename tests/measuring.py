"""perf_analyzer before a server that runs, and what everybody sees of it meanwhile."""

import subprocess

from tests.project import Project, words_shown_while

MEASURE = """
from pathlib import Path
from scripts.stacks import state
from scripts.measuring.perf_analyzer import at_hand
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import Configuration, find_subject
from scripts.recipes import pipelines

server, folder = state.load(), Path("build/loads").absolute()
folder.mkdir(exist_ok=True)
network = find_subject(server, pipelines.main()).network
pixels = Inputs("black", (bytes(3 * 224 * 224),), (3, 224, 224))
analyzer = at_hand(server, folder)
for protocol in ("grpc", "http"):
    assert analyzer.run(Configuration(network, pixels, protocol, 1, 1), 0.5).requests
"""


def words_shown_while_measuring(project: Project) -> set[str]:
    """Of all process lists' arguments, its own among them."""
    python = project.path / ".venv" / "bin" / "python"
    with subprocess.Popen([python, "-c", MEASURE], cwd=project.path) as measuring:
        shown = words_shown_while(measuring)
    assert measuring.returncode == 0
    assert "--measurement-interval" in shown
    return shown
