"""Makes the pictures in docs/pictures again, from a real server:

    TEST_ASSETS=folder .venv/bin/python -m tests.readme_pictures

terminal.svg   what a terminal shows of the first commands
page.png       the page, after a picture was dropped on it
report.png     the top of the report of make bench

It needs Chromium, the ports 8000 to 8002, and a machine with nothing else to do for some minutes.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.chromium import Tab, browser
from tests.project import ASSETS, ROOT, Project
from tests.terminals import typed, what_stays

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 92
WIDTH = 900


def main() -> int:
    if ASSETS is None:
        sys.exit("error: no TEST_ASSETS given; name the folder that CONTRIBUTING.md describes")
    with tempfile.TemporaryDirectory() as scratch:
        ports = {"HTTP_PORT": "8000", "GRPC_PORT": "8001", "METRICS_PORT": "8002"}
        project = Project.copy(Path(scratch) / "triton-bundle", FLAVOUR="local", **ports)
        weights = Path(project.settings.pop("WEIGHTS"))
        del project.settings["STEPS"]  # as a user has it
        shutil.copy(weights, project.path / "mobilenet_v2.safetensors")
        shutil.copy(ASSETS / "images" / "vulture.jpeg", project.path)
        try:
            draw_terminal(project)
            with browser(Path(scratch)) as tab:
                tab.do("Emulation.setScrollbarsHidden", hidden=True)
                take_page(tab, project)
                take_report(tab, project)
        finally:
            project.made("down")
    return 0


def draw_terminal(project: Project) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    for command in (
        "make demo FLAVOUR=local ARCH=mobilenet_v2 WEIGHTS=mobilenet_v2.safetensors",
        "make classify IMG=vulture.jpeg",
    ):
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        written = typed(command.split(), project.path, project.environment(), COLUMNS)
        written = written.replace(str(project.path), "~/triton-bundle")
        console.print(Text.from_ansi("\n".join(what_stays(written)).rstrip()))
        console.print()
    # Without the fonts that a browser would fetch from others.
    drawn = re.sub(r"@font-face {.*?}", "", console.export_svg(title="triton-bundle"), flags=re.S)
    (PICTURES / "terminal.svg").write_text(drawn)


def take_page(tab: Tab, project: Project) -> None:
    tab.look(WIDTH)
    tab.open(f"http://{project.http}/")
    for _ in range(3):  # the first ones warm up the browser
        tab.run("document.getElementById('answers').replaceChildren()")
        tab.until("!document.getElementById('pipeline').disabled")
        tab.drop(project.path / "build" / "mug.jpg")
        tab.until("document.querySelectorAll('.copies').length")
    take(tab, "page.png", ".card")


def take_report(tab: Tab, project: Project) -> None:
    (report,) = re.findall(r"report: (\S+)$", project.made("bench"), re.MULTILINE)
    tab.look(WIDTH)
    tab.open((project.path / report).as_uri())
    take(tab, "report.png", "#throughput")


def take(tab: Tab, name: str, last: str) -> None:
    """A picture of what is shown from the top to the end of one element."""
    edge = f"document.querySelector({last!r}).getBoundingClientRect().bottom + scrollY"
    tab.look(WIDTH, int(tab.run(edge)) + 24)
    tab.picture(PICTURES / name, whole=False)


if __name__ == "__main__":
    sys.exit(main())
