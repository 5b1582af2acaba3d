"""What a running Triton tells about itself, over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any

from scripts.errors import UserError


def get(address: str, path: str = "") -> Any:
    """GET /v2/path of the server at host:port."""
    try:
        with urllib.request.urlopen(f"http://{address}/v2{path}", timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError, http.client.HTTPException) as fault:
        raise UserError(f"{address} does not answer /v2{path}: {fault}", "see make logs") from None
