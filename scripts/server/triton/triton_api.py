"""A running Triton's HTTP API, with the admin key."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from bundle_serving.address import Address, read_refusal
from bundle_serving.process.guard import HEADER
from scripts.base.errors import UserError
from scripts.repository import place
from scripts.stacks import admin_key, state

SECONDS = 10


class Missing(UserError):
    """What was asked for is not there."""


def get(address: Address, path: str = "") -> Any:
    """GET /v2/path."""
    return _ask(address, path)


def fetch(address: Address, path: str) -> bytes:
    """GET /v2/path, of what is no JSON."""
    return bytes(_ask(address, path, read=bytes))


def delete(address: Address, path: str) -> Any:
    """DELETE /v2/path."""
    return _ask(address, path, "DELETE")


def post(address: Address, path: str, body: Any = None, timeout: float = SECONDS) -> Any:
    """POST /v2/path with a JSON body; None if the answer is empty."""
    return _ask(address, path, "POST", b"" if body is None else json.dumps(body).encode(), timeout)


def _ask(
    address: Address,
    path: str,
    method: str = "GET",
    data: bytes | None = None,
    timeout: float = SECONDS,
    read: Callable[[bytes], Any] = json.loads,
) -> Any:
    key = {HEADER: admin_key.load()}
    request = urllib.request.Request(f"{address.url}/v2{path}", data, key, method=method)
    where = f"{request.host} does not answer {request.selector}"
    try:
        with address.open(request, timeout) as answer:
            return read(answer.read() or b"null")
    except urllib.error.HTTPError as refusal:
        if refusal.code == http.client.FORBIDDEN:
            raise refuse_key(request.host) from None
        kind = Missing if refusal.code == http.client.NOT_FOUND else UserError
        raise kind(read_refusal(refusal.code, refusal.read()), "see make logs") from None
    except TimeoutError:
        raise UserError(f"{where} within {timeout:g} s", remedy_of_silence()) from None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = getattr(fault, "reason", fault)
        raise UserError(f"{where}: {reason}", "see make logs") from None


def refuse_key(where: object) -> UserError:
    cause = f"{where} rejects the key in {admin_key.SHOWN}"
    return UserError(cause, f"{state.name_start()} restarts it with this key")


def remedy_of_silence() -> str:
    """Triton may only be waiting for where its repository is; it serves on, and another start would
    need that."""
    elsewhere = place.find(state.settings_in_use())
    there = f", though {elsewhere.title} answers" if elsewhere else ""
    return f"if this persists{there}: make down && {state.name_start()}"
