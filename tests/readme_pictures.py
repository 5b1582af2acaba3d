"""Makes the pictures of the documents again, from a real server:

    TEST_ASSETS=folder .venv/bin/python -m tests.readme_pictures

terminal.svg      what a terminal shows of the first commands
page.png          the page, after a picture was dropped on it, of a network of one's own
side_by_side.png  the page, while a candidate runs beside the live version
page.png of kinds that find something in a picture
                  the page with what they find in a drawn street, with answers that are made up, as
                  no trained network of these comes with the project
and those of tests/drawn_pictures.py

It needs Chromium, the ports 8000 to 8002, and a machine with little else to do.
"""

import io
import json
import math
import re
import shutil
import sys
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo
from rich.console import Console
from rich.text import Text
from safetensors.torch import load_file

from scripts.artefacts.drawn import network
from scripts.artefacts.drawn.drawings import SIDE
from scripts.artefacts.drawn.things import NAMES
from tests import drawn_pictures
from tests.project import ASSETS, ROOT, Project
from tests.screens.chromium import Tab, browser
from tests.screens.page import choose, open_played
from tests.screens.terminals import typed, what_stays

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 92
SCREEN = 1366, 768
# What the page says whatever it is asked, without whose median it is.
OWN_WORDS = """[...document.querySelectorAll(
    'h2, nav a, #tiles dt, .tiles-say, .choices label, .drop-say, #choose, .samples, .spans span')]
  .filter(each => each.checkVisibility() && each.getBoundingClientRect().top < innerHeight)
  .map(each => each.firstChild.textContent.replace(/ of .*/, ' of').trim())
  .filter(each => /^\\D+$/.test(each))"""


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
                take_side_by_side(tab, project)
                take_found(tab, project)
                take_page(tab, serve_own(project))
        finally:
            project.made("down")
    return drawn_pictures.main()


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


def serve_own(project: Project) -> Project:
    """A network that knows drawings, as somebody has it who trained one."""
    module = network.network()
    module.load_state_dict(load_file(network.WEIGHTS))
    how: dict[str, Any] = {"dynamic_shapes": ({0: "batch"},), "external_data": False}
    example = torch.zeros(2, 3, SIDE, SIDE)
    torch.onnx.export(module.eval(), (example,), project.path / "things.onnx", **how)
    (project.path / "things.txt").write_text("".join(f"{name}\n" for name in NAMES))
    levels = f"mean: {[*network.MEAN]}, std: {[*network.STD]}"
    kept = {name: word for name, word in project.settings.items() if name != "ARCH"}
    own = replace(project, settings=kept)
    # It has learned pictures of 48 pixels, where a reduced size shows.
    own.settings["DECODE"] = "full"
    own.made("up", FROM="things.onnx", LABELS="things.txt", PICTURES=f"resize: {SIDE}, {levels}")
    return own


def take_page(tab: Tab, project: Project) -> None:
    tab.look(*SCREEN)
    tab.open(f"http://{project.http}/")
    tab.until("!document.getElementById('pipeline').disabled")
    for _ in least_of(tab, PICTURES / "page.png"):
        tab.drop(project.path / "build" / "mug.jpg")
        tab.until("document.querySelectorAll('.copies').length")


def least_of(tab: Tab, file: Path) -> Iterator[None]:
    """Asks again and again, and keeps the picture of the answers that took least."""
    least = math.inf
    for _ in range(20):  # the first ones warm up the browser, and others are met by other work
        tab.run("document.getElementById('forget').click()")
        yield
        took: float = tab.run("""Math.max(...[...document.querySelectorAll('.where summary')]
            .map(each => parseFloat(each.innerText)))""")
        if took < least:
            least = took
            keep(tab, file)


def take_side_by_side(tab: Tab, project: Project) -> None:
    """The candidate is the live version under another name."""
    played(tab, project, """
        if (path.startsWith('page/served.json')) return changed(real(path, options), told => {
          const [live] = told.pipelines;
          const model = `${live.model}_candidate`;
          told.pipelines.push({ ...live, model, candidate: true, share: 10, version: '2' });
        });
        return real(path.replace('_candidate', ''), options);""")  # fmt: skip
    tab.until("document.getElementById('beside').value")
    for _ in least_of(tab, PICTURES / "side_by_side.png"):
        for same, name in enumerate(("build/mug.jpg", "vulture.jpeg"), 1):
            tab.drop(project.path / name)
            tab.until(f"document.getElementById('tally').innerText.startsWith('same {same}')")


# What is where in the drawn street, and of which class.
STREET = {"house": (40, 60, 240, 330), "car": (330, 300, 590, 420), "tree": (270, 90, 390, 330)}


def take_found(tab: Tab, project: Project) -> None:
    street, mask = draw_street()
    street.save(project.path / "street.jpg", quality=92)
    sides = ("left", "top", "right", "bottom")
    boxes = [
        {"label": label, "score": score, **dict(zip(sides, corners, strict=True))}
        for (label, corners), score in zip(STREET.items(), (0.97, 0.94, 0.88), strict=True)
    ]
    areas = [
        {"label": label, "index": number, "share": float((mask == number).mean())}
        for number, label in enumerate(["__background__", *STREET])
    ]
    areas.sort(key=lambda each: float(str(each["share"])), reverse=True)
    classes = b64encode(zlib.compress(mask.tobytes())).decode()
    height, width = mask.shape
    found = {
        "detection": {"boxes": boxes},
        "segmentation": {
            "areas": areas,
            "mask": {"height": height, "width": width, "classes": classes},
        },
    }
    for name, answer in found.items():
        kind = {"detection": "boxes", "segmentation": "masks"}[name]
        played(tab, project, f"""
            if (path.startsWith('page/served.json')) return changed(real(path, options), told => {{
              told.pipelines = [{{ ...told.pipelines[0],
                model: '{name}', of: '{name}', kind: '{kind}',
                networks: [{{ name: 'a stand-in' }}], classes: {{ count: 0, first: [] }} }}];
            }});
            if (path.startsWith('classify'))
              return Response.json({json.dumps(answer)});""")  # fmt: skip
        tab.until(f"document.getElementById('pipeline').value === '{name}'")
        choose(tab, name)
        tab.drop(project.path / "street.jpg")
        tab.until("document.querySelectorAll('.copies').length")
        keep(tab, ROOT / "kinds" / name / "page.png")


def played(tab: Tab, project: Project, script: str) -> None:
    tab.look(*SCREEN)
    open_played(tab, f"http://{project.http}/", script)


def keep(tab: Tab, file: Path) -> None:
    """With the page's own words on it, by which a test finds out that it is of another page."""
    tab.picture(file, whole=False)
    words = PngInfo()
    words.add_itxt(drawn_pictures.WORDS, "\n".join(tab.run(OWN_WORDS)))
    with Image.open(file) as picture:
        picture.load()
    picture.save(file, pnginfo=words)


def draw_street() -> tuple[Image.Image, NDArray[np.uint8]]:
    """And which of its pixels belong to what."""
    picture, mask = Image.new("RGB", (640, 460), (176, 214, 232)), Image.new("L", (640, 460))
    pen, marks = ImageDraw.Draw(picture), ImageDraw.Draw(mask)

    def fill(number: int, shape: str, places: object, colour: tuple[int, int, int]) -> None:
        getattr(pen, shape)(places, fill=colour)
        if number:
            getattr(marks, shape)(places, fill=number)

    fill(0, "rectangle", (0, 330, 640, 460), (120, 122, 126))
    fill(0, "rectangle", (0, 318, 640, 336), (170, 168, 160))
    fill(1, "rectangle", (60, 150, 220, 330), (222, 196, 160))
    fill(1, "polygon", [(40, 150), (140, 60), (240, 150)], (164, 74, 58))
    for left, top in ((80, 180), (160, 180), (80, 250)):
        fill(1, "rectangle", (left, top, left + 40, top + 40), (110, 160, 190))
    fill(1, "rectangle", (160, 250, 200, 330), (104, 66, 44))
    fill(3, "rectangle", (320, 220, 340, 330), (104, 72, 44))
    fill(3, "ellipse", (270, 90, 390, 250), (64, 140, 72))
    fill(2, "rectangle", (330, 345, 590, 395), (196, 52, 48))
    fill(2, "polygon", [(380, 345), (415, 300), (505, 300), (550, 345)], (160, 200, 214))
    for left in (365, 500):
        fill(2, "ellipse", (left, 370, left + 50, 420), (36, 36, 40))
    return picture, np.asarray(mask)


if __name__ == "__main__":
    sys.exit(main())
