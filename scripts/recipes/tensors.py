"""Asking a server by tensors, over HTTP."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bundle_serving import infer
from bundle_serving.address import Address
from bundle_serving.infer import Answer, Question
from scripts.base.errors import UserError
from scripts.recipes.asking import Server

TIMEOUT_S = 60


def ask_each(
    server: Server,
    model: str,
    questions: Sequence[Question],
    headers: Mapping[str, str] = infer.NONE,
) -> list[Answer]:
    connection = _address(server).connection(TIMEOUT_S)
    try:
        return [infer.ask(connection, model, each, headers) for each in questions]
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = str(fault) or type(fault).__name__
        raise UserError(f"{model} does not answer: {reason}", "see make logs") from None
    finally:
        connection.close()


def _address(server: Server) -> Address:
    known = server.known
    certificate = Path(known["ca_file"]) if "ca_file" in known else None
    found = Address.parse(known["url"])
    return replace(found, certificate=certificate, api_key=known.get("api_key", ""))
