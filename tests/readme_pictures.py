"""Makes the pictures in docs/pictures again, from a real server:

    TEST_ASSETS=folder .venv/bin/python -m tests.readme_pictures

terminal.svg   what a terminal shows of the first commands
page.png       the page, after a picture was dropped on it
report.png     the top of the report of make bench

It needs Chromium, the ports 8000 to 8002, and a machine with nothing else to do for some minutes.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.chromium import Tab, browser
from tests.project import ASSETS, ROOT, Project

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
        written = typed(project, command).replace(str(project.path), "~/triton-bundle")
        console.print(Text.from_ansi("\n".join(what_stays(written)).rstrip()))
        console.print()
    # Without the fonts that a browser would fetch from others.
    drawn = re.sub(r"@font-face {.*?}", "", console.export_svg(title="triton-bundle"), flags=re.S)
    (PICTURES / "terminal.svg").write_text(drawn)


def typed(project: Project, command: str) -> str:
    """All that the command writes to a terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (50, COLUMNS))
    process = subprocess.Popen(
        command.split(),
        cwd=project.path,
        env=project.environment(TERM="xterm-256color"),
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    written = b""
    try:
        while piece := os.read(ours, 1 << 16):
            written += piece
    except OSError:  # the last process that had it has ended
        pass
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


def what_stays(written: str) -> list[str]:
    """Its rows in the end, without the spinners that were drawn over."""
    rows, row = [""], 0
    for piece in re.split(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)", written):
        if piece == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif up := re.fullmatch(r"\x1b\[(\d+)A", piece):
            row -= int(up[1])
        elif piece == "\x1b[2K":
            rows[row] = ""
        elif piece != "\r" and not piece.startswith("\x1b[?"):
            rows[row] += piece
    return rows


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
