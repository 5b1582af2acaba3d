"""What a running Triton tells about itself, over HTTP."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


def get(address: str, path: str = "") -> Any:
    """GET /v2/path of the server at host:port."""
    with urllib.request.urlopen(f"http://{address}/v2{path}", timeout=5) as answer:
        return json.load(answer)
