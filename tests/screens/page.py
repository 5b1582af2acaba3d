"""The door's page, as people use it."""

import json

from tests.screens.chromium import Tab


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


def open_played(tab: Tab, url: str, script: str) -> None:
    """The page anew, with other answers to some of what it asks: `script` returns them for `path`
    and `options`, with `real` as what fetches, and `changed` to alter what came."""
    tab.open("about:blank")
    added = tab.do(
        "Page.addScriptToEvaluateOnNewDocument",
        source=f"""
        {{ const real = window.fetch.bind(window);
          const changed = async (answer, change) => {{
            const told = await (await answer).json();
            change(told);
            return Response.json(told);
          }};
          window.fetch = async (asked, options) => {{
            const path = String(asked);
            {script}
            return real(path, options);
          }}; }}""",
    )
    tab.open(url)
    tab.do("Page.removeScriptToEvaluateOnNewDocument", **added)
    tab.until("document.getElementById('pipeline')?.disabled === false")
