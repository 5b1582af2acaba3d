"""Says what is on a picture; brings the server up if it is not.

    make classify IMG=photo.jpg        one picture, or several in quotes, a folder, a URL
    make classify IMG=photos JSON=1    one line of JSON a picture
    make classify MODEL=places IMG=…   what kind of place they show
    make classify MODEL=cascade IMG=…  by a small network first

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
from scripts.host.settings import NOT_SERVED
from scripts.host.state import State

# What can be asked; empty: the pipeline of pictures.
MODELS = ("", "places", "cascade")


def main() -> int:
    pictures = _pictures(os.environ.get("IMG", ""))
    model = os.environ.get("MODEL", "")
    if model not in MODELS:
        offered = ", ".join(filter(None, MODELS))
        raise UserError(f"MODEL={model} is not known", f"leave it out, or choose: {offered}")
    if model == "places":
        from scripts import places

        return places.ask(pictures)
    options = ["--top", os.environ.get("TOP") or "5"]
    if os.environ.get("JSON"):
        options.append("--json")
    server = running_server()
    if model == "cascade":
        from scripts import cascade

        with all_output_on_stderr():
            options += ["--model", cascade.prepare(server)]
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


def running_server() -> State:
    """The server that is up, if it is what is asked for; else it is brought up."""
    wished = settings.load()
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
