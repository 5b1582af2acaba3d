"""One picture asked about, with the times of client and server."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bundle_serving.address import Address
from scripts.base.errors import UserError
from scripts.measuring.request_spans import Span, spans

TIMEOUT_S = 60


def ask_traced(
    address: Address, model: str, file: Path, trace: str
) -> tuple[dict[str, Any], list[Span]]:
    times = [time.perf_counter()]
    picture = file.read_bytes()
    times.append(time.perf_counter())
    connection = address.connection(TIMEOUT_S)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
    path = f"/classify?top=1&timings=1&model={quote(model, safe='')}"
    try:
        connection.connect()
        times.append(time.perf_counter())
        connection.request("POST", path, picture, headers)
        response = connection.getresponse()
        body = response.read()
        times.append(time.perf_counter())
    except (OSError, http.client.HTTPException) as fault:
        raise UserError(f"{address} does not answer: {fault}", "see make logs") from None
    finally:
        connection.close()
    answer = parse_answer(response.status, body)
    began, read, connected, ended = (1000 * each for each in times)
    before = {"reading the file": read - began, "connecting": connected - read}
    return answer, spans(before, ended - connected, answer["timings"])


def parse_answer(status: int, body: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(body)
    except ValueError:
        answer = {}
    if status == http.client.OK and "timings" in answer:
        return answer
    error = answer.get("error", f"HTTP {status}")
    if isinstance(error, dict):
        raise UserError(error["cause"], error["remedy"])
    raise UserError(str(error), "see make logs")
