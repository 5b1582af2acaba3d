"""The API's documentation: /openapi.json, and a page that shows it."""

from __future__ import annotations

from pathlib import Path

import yaml

from bundle_door.answers import Answer, as_json

HERE = Path(__file__).parent
PAGE = {
    "content-type": "text/html; charset=utf-8",
    # The page loads nothing from other servers and sends nothing there.
    "content-security-policy": "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
}


def documents() -> dict[str, Answer]:
    page = Answer((HERE / "docs.html").read_bytes(), headers=PAGE)
    openapi = as_json(yaml.safe_load((HERE / "openapi.yaml").read_text()))
    return {"/": page, "/docs": page, "/openapi.json": openapi}
