"""Says what is on a picture; brings the server up if it is not.

    make classify IMG=photo.jpg        one picture, or several in quotes, a folder, a URL
    make classify IMG=photos JSON=1    one line of JSON a picture
    make classify MODEL=places IMG=…   what kind of place they show
    make classify MODEL=cascade IMG=…  by a small network first
    make classify MODEL=birds IMG=…    by a network of your own: make add-model

Settings given here that differ from the running server's bring it up afresh with them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from bundle_serving.start_server import PIPELINE
from scripts.errors import INTERRUPTED, UserError, guarded
from scripts.host import client_side, settings, state
from scripts.host.settings import NOT_SERVED, Settings
from scripts.host.state import State
from scripts.pipeline import pipelines

# What can be asked beside the pipelines of pictures.
OTHERS = ("places", "cascade")


def main() -> int:
    pictures = _pictures(os.environ.get("IMG", ""))
    model = os.environ.get("MODEL", "")
    if model == "places":
        from scripts import places

        return places.ask(pictures)
    options = ["--top", os.environ.get("TOP") or "5"]
    if os.environ.get("JSON"):
        options.append("--json")
    if model == "cascade":
        from scripts import cascade

        server = running_server()
        with all_output_on_stderr():
            options += ["--model", cascade.prepare(server)]
    elif model:
        from scripts import added

        pipeline = pipelines.named(model, OTHERS)
        with all_output_on_stderr():
            server = added.running(pipeline)
        options += ["--model", pipeline.ensemble]
    else:
        server = running_server()
    return ask(server, pictures, *options)


def ask(server: State, pictures: list[str], *options: str) -> int:
    with all_output_on_stderr():
        side = client_side.of(server)
    program = ["python3", "-m", "bundle_client", "--url", side.http, *options, "--", *pictures]
    try:
        return side.run(program, reads=pictures).returncode
    except KeyboardInterrupt:  # the client got it too, and has said how far it came
        return INTERRUPTED


def _pictures(said: str) -> list[str]:
    if not said:
        raise UserError("no picture given", "name one: make classify IMG=photo.jpg")
    return [said] if Path(said).exists() else shlex.split(said)


def running_server(wished: Settings | None = None) -> State:
    """The server that is up, if it is what is asked for; else it is brought up."""
    wished = wished or settings.load()
    known = state.load()
    if known:
        asked = wished.given - NOT_SERVED
        wished = wished.over(known.settings)
        same = all(wished[name] == known.settings.get(name) for name in asked)
        if same and reason_not_to_trust(f"http://{known.http}", PIPELINE) is None:
            return known
    from scripts.up import bring_up

    with all_output_on_stderr():
        return bring_up(wished)


@contextmanager
def all_output_on_stderr() -> Iterator[None]:
    """Of this process and its children: stdout is for the answers, which a program may read."""
    sys.stdout.flush()
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(answers, 1)
        os.close(answers)


if __name__ == "__main__":
    sys.exit(guarded(main))
