"""The page of a server that `make up` has started: a real picture, in a real browser."""

import json
import time
from pathlib import Path

from tests.plugin import everywhere
from tests.project import Project
from tests.screens.chromium import browser

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
STEPS = ["Upload", "Decode, resize", "Neural network", "Labels", "Answer", "Wire, browser"]


@everywhere
def test_from_up_to_a_label(served: Project, assets: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.look()
        opened = time.monotonic()
        tab.open(f"http://localhost:{served.settings['HTTP_PORT']}/")
        tab.until("!document.getElementById('pipeline').disabled")
        tab.drop(assets / "images" / "mug.jpg")
        tab.until("document.querySelector('.labels')?.innerText")
        print(f"first paint {tab.run(FIRST_PAINT)} ms, a label {time.monotonic() - opened:.1f} s")
        assert "coffee mug" in tab.text(".labels li")
        assert "mobilenet_v2" in tab.text("#answers .facts")
        assert tab.run("document.getElementById('untrained').hidden")
        rows = json.loads(
            tab.run("""JSON.stringify([...document.querySelectorAll('.spans li')]
                .map(each => each.innerText.split(/\\s*\\n/)))""")
        )
        assert [row[0] for row in rows] == served.list_reported(STEPS)
        # The times add up to the whole: nothing is counted twice.
        whole = tab.text(".where summary").split(" ms in all")[0]
        in_all = sum(float(row[-1].removesuffix(" ms")) for row in rows)
        assert in_all <= float(whole) * 1.05 + 5
        assert tab.console == []
