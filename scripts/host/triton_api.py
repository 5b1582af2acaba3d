"""What a running Triton tells about itself, over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from scripts.errors import UserError


def get(address: str, path: str = "") -> Any:
    """GET /v2/path of the server at host:port."""
    return _asked(address, path, None, 10)


def post(address: str, path: str, body: Any, timeout: float) -> Any:
    """POST /v2/path; what Triton says against it is the error's cause."""
    return _asked(address, path, json.dumps(body).encode(), timeout)


def _asked(address: str, path: str, body: bytes | None, timeout: float) -> Any:
    try:
        request = urllib.request.Request(f"http://{address}/v2{path}", body)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refusal:
        said = json.loads(refusal.read() or b"{}").get("error", str(refusal))
        raise UserError(" ".join(said.split()), "see make logs") from None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        raise UserError(f"{address} does not answer /v2{path}: {fault}", "see make logs") from None
