"""The files that a browser asks for: the page, and the API with a page that shows it."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
import yaml

import bundle_serving
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
# Where a document names the files that kinds of pipelines add to it (page/cards.js).
CARDS = b"<!-- cards -->"
ADDITIONS = "/page/cards/"
ADDED = {
    ".css": '<link rel="stylesheet" href="{}">',
    ".js": '<script type="module" src="{}"></script>',
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
    files = find_files()
    cards = link(where for where in files if where.startswith(ADDITIONS))
    found = {where: file(path, cards) for where, path in files.items()}
    shown = {"/": found.pop("/page/index.html"), "/docs": found.pop("/page/docs.html")}
    openapi = yaml.safe_load((HERE / "paths" / "openapi.yaml").read_text())
    described = tagged(msgspec.json.encode(openapi), "application/json")
    return {**shown, **found, "/openapi.json": described}


def find_files() -> dict[str, Path]:
    """By the paths under which they are fetched; with the cards of the kinds that are here."""
    own = {path.relative_to(PAGE).as_posix(): path for path in PAGE.rglob("*")}
    cards = [card for part in bundle_serving.__path__ for card in Path(part, "page").glob("*")]
    cards.sort(key=lambda card: card.name)
    found = {**own, **{f"cards/{card.name}": card for card in cards}}
    return {f"/page/{where}": path for where, path in found.items() if path.suffix in KINDS}


def find_own_cards(repository: Path | None) -> dict[str, Path]:
    """Those that programs of the user's own kinds have beside them, the newest version's; as of
    now, for a pipeline may come or go while the door is open."""
    found = repository.glob("*/[1-9]*/page/*.*s") if repository else ()
    versions = [card for card in found if card.suffix in ADDED and card.parts[-3].isdecimal()]
    versions.sort(key=lambda card: int(card.parts[-3]))
    return {f"{ADDITIONS}{card.name}": card for card in versions}


def add_cards(page: Answer, repository: Path | None) -> Answer:
    if CARDS not in page.body or not (own := find_own_cards(repository)):
        return page
    return tagged(page.body.replace(CARDS, link(own)), KINDS[".html"])


def link(cards: Iterable[str]) -> bytes:
    """And leaves the place for more."""
    lines = (ADDED[Path(where).suffix].format(where[1:]).encode() for where in sorted(cards))
    return b"\n".join([*lines, CARDS])


def file(path: Path, cards: bytes = CARDS) -> Answer:
    return tagged(path.read_bytes().replace(CARDS, cards), KINDS[path.suffix])


def tagged(body: bytes, kind: str) -> Answer:
    """A browser that has it already is not sent it again."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return Answer(body, headers={"content-type": kind, "etag": tag, **HEADERS})
