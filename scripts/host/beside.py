"""A second pipeline beside that of pictures: made by a step of its own, loaded into the server that
runs."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from scripts.bootstrap import PYTHON, ROOT
from scripts.errors import INTERRUPTED, AlreadyTold, UserError
from scripts.host import console
from scripts.host.state import State

# A network is read, compiled and warmed up in so long at most.
LOAD_TIMEOUT_S = 120


def make(module: str, *arguments: str | Path) -> None:
    """In the project's environment, whatever the flavour: an export needs no GPU."""
    command: list[str | Path] = [PYTHON, "-m", module, *arguments]
    try:
        code = subprocess.run(command, cwd=ROOT).returncode
    except KeyboardInterrupt:  # the step got it too, and has said so
        code = INTERRUPTED
    if code:
        raise AlreadyTold(code)


def load(server: State, pipeline: str, changed: bool, members: Sequence[str] = ()) -> None:
    """The server starts with the pipeline of pictures alone. Members are named where Triton does
    not know them: of an ensemble it does."""
    url = f"http://{server.http}"
    if not changed and reason_not_to_trust(url, pipeline) is None:
        return
    with console.waiting(f"loading {pipeline}"):
        for model in (*members, pipeline):
            _load(url, model)
    if reason := reason_not_to_trust(url, pipeline):
        raise UserError(f"{pipeline} does not answer: {reason}", "see make logs")


def _load(url: str, model: str) -> None:
    request = urllib.request.Request(f"{url}/v2/repository/models/{model}/load", data=b"{}")
    try:
        urllib.request.urlopen(request, timeout=LOAD_TIMEOUT_S).close()
    except OSError as fault:
        raise UserError(f"{model} cannot be loaded ({fault})", "see make logs") from None
