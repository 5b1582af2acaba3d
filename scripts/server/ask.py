"""Asks the running server with the bundle's client."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scripts.base.errors import INTERRUPTED
from scripts.base.streams import all_output_on_stderr
from scripts.recipes.asking import Server
from scripts.stacks import client_side
from scripts.stacks.state import State


def of(server: State) -> Server:
    return Server(server.http, partial(_client, server))


def _client(server: State, options: Sequence[str], pictures: Sequence[str]) -> int:
    with all_output_on_stderr():
        side = client_side.of(server)
    program = ["python3", "-m", "bundle_client", "--url", side.http, *options, "--", *pictures]
    try:
        return side.run(program, reads=pictures).returncode
    except KeyboardInterrupt:  # the client got it too, and has reported it
        return INTERRUPTED
