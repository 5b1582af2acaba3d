"""Asking a server through the bundle's client. Imports nothing large: a running server answers
faster than the pipeline kinds can be imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from scripts.settings import arguments


class Known(TypedDict, total=False):
    """What the bundle's client needs to know about a server."""

    url: str
    api_key: str
    ca_file: str
    server_name: str


@dataclass(frozen=True)
class Server:
    """The server to ask."""

    known: Known
    client: Callable[[Sequence[str], Sequence[str]], int]  # the client's program: options, pictures


def about_pictures(
    server: Server, model: str, pictures: Sequence[str], environment: Mapping[str, str]
) -> int:
    options = ["--model", model, "--top", str(arguments.load(environment).top)]
    return server.client([*options, *(["--json"] if environment.get("JSON") else [])], pictures)
