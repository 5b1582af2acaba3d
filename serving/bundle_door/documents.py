"""The files that a browser asks for: the page, and the API with a page that shows it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import yaml

from bundle_door.answers import Answer

HERE = Path(__file__).parent
PAGE = HERE / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
}
# Nothing comes from elsewhere or goes there, and nothing in a document itself is run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' blob: data:; media-src 'self' blob:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "permissions-policy": "camera=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # A newer bundle may answer under the same address: its tags are others.
    "cache-control": "no-cache",
}


def paths() -> list[str]:
    """What a browser may fetch without an API key, to be able to ask for one."""
    shown = sorted(path for path in find_files() if not path.endswith(".html"))
    return ["/", "/docs", "/openapi.json", *shown]


def documents() -> dict[str, Answer]:
    found = {path: file(each) for path, each in find_files().items()}
    shown = {"/": found.pop("/page/index.html"), "/docs": found.pop("/page/docs.html")}
    openapi = yaml.safe_load((HERE / "paths" / "openapi.yaml").read_text())
    described = tagged(msgspec.json.encode(openapi), "application/json")
    return {**shown, **found, "/openapi.json": described}


def find_files() -> dict[str, Path]:
    """By the paths under which they are fetched."""
    found = (path for path in PAGE.rglob("*") if path.suffix in KINDS)
    return {f"/page/{path.relative_to(PAGE).as_posix()}": path for path in found}


def file(path: Path) -> Answer:
    return tagged(path.read_bytes(), KINDS[path.suffix])


def tagged(body: bytes, kind: str) -> Answer:
    """A browser that has it already is not sent it again."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return Answer(body, headers={"content-type": kind, "etag": tag, **HEADERS})
