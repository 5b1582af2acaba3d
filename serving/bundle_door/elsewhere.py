"""Candidates on servers of their own, where there are several: what a rollout tells each door of
them, again and again as long as it goes on. All of the door's processes read it."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bundle_door.limits import MOST_NAME

NOTE = "candidates.json"
# How long it holds at most: of a rollout that was killed, nothing is told any more.
MOST_S, MOST_SERVERS = 600, 100

Name = Annotated[str, Meta(max_length=MOST_NAME)]
# A host, and the port of its gRPC.
Server = Annotated[str, Meta(pattern=r"^[\w.:\[\]-]+:[0-9]{1,5}$", max_length=MOST_NAME)]


class Elsewhere(msgspec.Struct, forbid_unknown_fields=True):
    """A model's candidate; without servers it has none any more."""

    model: Name
    version: Name
    servers: Annotated[list[Server], Meta(max_length=MOST_SERVERS)] = []
    # Of the model's requests, in percent; none where only those who name the candidate ask it.
    share: Annotated[float, Meta(ge=0, le=100)] = 0.0
    # For how long this holds.
    seconds: Annotated[float, Meta(ge=0, le=MOST_S)] = 0.0


class Noted(msgspec.Struct):
    told: Elsewhere
    until: float


def note(folder: Path, told: Elsewhere) -> None:
    kept = [each for each in _read(folder) if each.told.model != told.model]
    if told.servers:
        kept.append(Noted(told, time.time() + told.seconds))
    unfinished = folder / f"{NOTE}.new"
    unfinished.write_bytes(msgspec.json.encode(kept))
    unfinished.replace(folder / NOTE)


def read(folder: Path | None) -> dict[str, Elsewhere]:
    """By model; none without a folder."""
    noted = _read(folder) if folder else ()
    return {each.told.model: each.told for each in noted if time.time() < each.until}


def _read(folder: Path) -> list[Noted]:
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=list[Noted])
    return []
