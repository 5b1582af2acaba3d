"""Says what is on a picture; brings the server up if it is not.

    make classify IMG=photo.jpg        a picture, a folder or a URL; in quotes several, or a *.jpg
    make classify IMG=photos JSON=1    one line of JSON a picture
    make classify MODEL=places IMG=…   what kind of place they show
    make classify MODEL=cascade IMG=…  by a small network first
    make classify MODEL=birds IMG=…    by a network of your own: make add-model

Settings given here that differ from the running server's bring it up afresh with them.
"""

from __future__ import annotations

import os
import sys

from scripts.base.console import all_output_on_stderr
from scripts.base.errors import guarded
from scripts.recipes import pipelines
from scripts.server.ask import ask
from scripts.server.running import running_server
from scripts.settings import pictures


def main() -> int:
    named = pictures.named(os.environ.get("IMG", ""))
    model = os.environ.get("MODEL", "")
    if model == "places":
        from scripts.server import places

        return places.ask(named)
    options = ["--top", os.environ.get("TOP") or "5"]
    if os.environ.get("JSON"):
        options.append("--json")
    if model == "cascade":
        from scripts.server import cascade

        server = running_server()
        with all_output_on_stderr():
            options += ["--model", cascade.prepare(server)]
    elif model:
        from scripts.server import custom

        pipeline = pipelines.named(model, pipelines.OTHERS)
        with all_output_on_stderr():
            server = custom.running(pipeline)
        options += ["--model", pipeline.ensemble]
    else:
        server = running_server()
    return ask(server, named, *options)


if __name__ == "__main__":
    sys.exit(guarded(main))
