"""Where servers read the live repository, and machines exchange versions, if that is no folder of
this machine: what an extension makes of the settings, in its place.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from scripts.base import parts
from scripts.settings.settings import Settings


class Folder(Protocol):
    """One there, with the files below it by their names."""

    @property
    def location(self) -> object: ...
    @property
    def prefix(self) -> str: ...
    @property
    def archive(self) -> Folder: ...
    def place_beside(self, what: str) -> Folder: ...
    def mirror(
        self, folder: Path, to: str = "", *, known: str = "", only: Collection[str] = ()
    ) -> object: ...
    def fetch(self, at: str, folder: Path) -> None: ...
    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, content: bytes) -> None: ...
    def list_stored(self) -> Mapping[str, Any]: ...
    def list(self, prefix: str = "") -> list[str]: ...
    def remove(self, prefix: str) -> None: ...


class Place(Protocol):
    title: str
    compose_file: str
    host: str
    port: int
    endpoint: str | None

    def require_reachable(self) -> None: ...
    def require_reachable_from_containers(self) -> None: ...
    def open(self) -> Folder: ...
    def hand_over_keys(self) -> Path:
        """Writes the server's key to where a newly started server reads it."""

    def read_key(self) -> str:
        """The server's, as such a file has it."""

    def list_variables(self) -> dict[str, str]:
        """What its Compose file asks for."""

    def list_options(self) -> Iterable[str | Path]:
        """For a keeper on this machine."""


def find(settings: Settings) -> Place | None:
    found = (each.find(settings) for each in parts.find("place"))
    return next(filter(None, found), None)


def open_folder(settings: Settings) -> Folder | None:
    found = find(settings)
    return found.open() if found else None
