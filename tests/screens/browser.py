"""A page as a real browser shows it: headless Chromium."""

import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

UNAWARE = Path(__file__).with_name("unaware.py")
NAMES = ("chromium", "chromium-browser", "google-chrome")

# Runs in the page after all else, and leaves what it saw where --dump-dom shows it.
LOOK = """
<script>
const seen = [...document.querySelectorAll("figure")].map(figure => {
  const plot = figure.querySelector("svg").getBoundingClientRect();
  return {id: figure.id, width: plot.width, height: plot.height,
          shapes: figure.querySelectorAll("svg path, svg use").length};
});
document.body.dataset.seen = JSON.stringify(
  {plots: seen, text: document.body.innerText, wide: document.body.scrollWidth - innerWidth});
</script>
"""


@dataclass
class Page:
    plots: list[dict[str, Any]]
    text: str
    wide: int  # pixels that stick out at the side
    console: list[str]


def headless(scratch: Path) -> list[str]:
    """A browser without a window, with a profile of its own."""
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("no Chromium here")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += ["--disable-background-networking", f"--user-data-dir={scratch / 'profile'}"]
    return [sys.executable, str(UNAWARE), chromium, *options, "--no-first-run"]


def opened(path: Path, scratch: Path) -> Page:
    copy = scratch / "looked-at.html"
    copy.write_text(path.read_text().replace("</body>", f"{LOOK}</body>"))
    options = ["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1000,1200"]
    options += ["--enable-logging=stderr", "--dump-dom", copy.as_uri()]
    shown = subprocess.run(
        [*headless(scratch), *options], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'data-seen="([^"]*)"', shown.stdout)
    assert found, shown.stderr
    seen = json.loads(html.unescape(found[1]))
    return Page(**seen, console=re.findall(r".*CONSOLE.*", shown.stderr))
