"""Asks the running server with the bundle's client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bundle_serving.address import Address
from scripts import bootstrap
from scripts.base import interrupts
from scripts.base.errors import UserError
from scripts.recipes.asking import Known, Server
from scripts.settings import arguments
from scripts.stacks import exposure
from scripts.stacks.state import State

if TYPE_CHECKING:
    from bundle_client import Client


def server_of(server: State) -> Server:
    address = server.http
    client, watch = partial(_client, server), partial(_watch, server)
    return Server(read_known(address), address, client, watch)


@contextmanager
def uncounted_client(address: Address, model: str) -> Iterator[Client]:
    """One whose requests look after the server: no figure of its users counts them."""
    from bundle_client import Client, ClientError

    with Client(**read_known(address), model=model) as client:
        headers = address.uncounted_headers | address.server_header
        client.server = replace(client.server, headers=tuple(headers.items()))
        try:
            yield client
        except ClientError as fault:
            about = f"{fault.source}: " if fault.source else ""
            raise UserError(f"{about}{fault.cause}", fault.remedy) from None


def read_known(address: Address, protocol: str = "http") -> Known:
    encrypted = "s" if address.certificate else ""
    found = Known(url=f"{protocol}{encrypted}://{address}")
    if address.api_key:
        found["api_key"] = address.api_key
    if address.certificate:
        found["ca_file"] = str(address.certificate)
        found["server_name"] = exposure.name_in(address.certificate)
    return found


def _client(server: State, options: Sequence[str], pictures: Sequence[str]) -> int:
    program = [sys.executable, "-m", "bundle_client", *options, "--", *pictures]
    if any(option.endswith(".parquet") for option in options):
        bootstrap.ensure("parquet")
    variables = {
        f"BUNDLE_{name.upper()}": str(value) for name, value in read_known(server.http).items()
    }
    try:
        asked = subprocess.run([*interrupts.HELD_BACK, *program], env=os.environ | variables)
        return asked.returncode
    except KeyboardInterrupt:  # the client got it too, and has reported it
        return interrupts.INTERRUPTED


def _watch(server: State, model: str, video: str, environment: Mapping[str, str]) -> int:
    """On this machine, where cameras and files are."""
    bootstrap.ensure("video")
    from bundle_client import Client
    from bundle_client.watching import watch

    wanted = arguments.load(environment)
    with Client(**read_known(server.grpc, "grpc"), protocol="grpc") as client:
        return watch(
            client, video, model, wanted.top, live=wanted.live, as_json=wanted.json, out=wanted.out
        )
