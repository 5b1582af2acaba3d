"""The door's page, as people use it."""

from __future__ import annotations

import json

from tests.chromium import Tab


def opened(tab: Tab, port: str, pipeline: str) -> None:
    """Anew, with the pipeline chosen."""
    tab.open(f"http://localhost:{port}/")
    offered = "[...document.getElementById('pipeline').options].map(each => each.value)"
    tab.until(f"{offered}.includes({json.dumps(pipeline)})")
    choose(tab, pipeline)


def choose(tab: Tab, pipeline: str, by: str = "pipeline") -> None:
    tab.run(f"""{{ const select = document.getElementById('{by}');
                 select.value = {json.dumps(pipeline)};
                 select.dispatchEvent(new Event('change')); }}""")


def until_answered(tab: Tab, count: int = 1) -> None:
    tab.until(f"""document.querySelectorAll('.card').length === {count}
              && !document.querySelector('.busy')""")
