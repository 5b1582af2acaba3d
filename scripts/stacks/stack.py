"""Where the steps and the server run: what the rest of the bundle asks of it, whichever it is."""

from __future__ import annotations

import subprocess
from collections.abc import Container, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from bundle_serving.address import Address
from scripts.artefacts.step import Step
from scripts.recipes.layout import Engine
from scripts.repository.archive import Version
from scripts.settings.settings import Settings
from scripts.stacks.state import State


class Many(Protocol):
    """Several servers, which a change replaces one after the other: of an extension's stack."""

    def list_pipelines(
        self, settings: Settings, version: Version, laid_out: Container[str]
    ) -> dict[str, int]:
        """That each server is to load when it starts: ensembles, with their versions."""

    def load(self, server: State, version: Version) -> State:
        """Into each server, unless they have it."""

    def unload(self, server: State, ensemble: str) -> None: ...

    def find_addresses(self, server: State) -> dict[str, Address]:
        """Of each server, by its name."""

    def scale(self, server: State, replicas: int) -> None: ...

    def go_back(self, server: State) -> None:
        """After a switch that was interrupted."""

    def make_switch(self, running: Any, proved: Any) -> Any:
        """A `scripts.rollout.rollout.Switching`, of such a `Running` and `Proved`."""

    def show(self) -> None:
        """On which nodes they are, and what is wrong there."""


class Stack(Protocol):
    flavour: str
    engine: Engine  # that runs networks there
    many: Many | None  # where there are several servers
    run_dir: str  # as the server sees it: writable, and programs may run from it
    log_hint: str

    def prepare(self) -> None:
        """Refuses what cannot work, and gets what a server needs."""

    def run_step(self, step: Step, *arguments: str | Path) -> None: ...

    def version(self) -> str:
        """The server program's version, for the fingerprint."""

    def start(self, wanted: State) -> None: ...

    def rehearse(self) -> None:
        """Whether a server starts with what is laid out, before the one from before is stopped."""

    def temporary(
        self, repository: Path, log: Path, pipeline: str
    ) -> AbstractContextManager[tuple[str, str]]:
        """A server for the duration of a block; yields its HTTP and gRPC addresses."""

    # One server beside another

    def why_alone(self, known: State) -> str | None:
        """Why no other server can come up beside this one, and take over from it."""

    def start_beside(self, known: State, wanted: State, pipelines: Iterable[str]) -> State:
        """Nothing comes to it before it takes over, and has loaded all of these."""

    def why_unready(self, new: State) -> str | None: ...

    def take_over(self, known: State, new: State) -> None:
        """Once it answers."""

    def withdraw(self, new: State) -> None:
        """The server from before serves on."""

    def end_strays(self, known: State) -> None:
        """What a make that was killed has left of a hand-over."""

    # What runs

    def alive(self) -> bool: ...

    def keeper_state(self) -> dict[str, Any]:
        """The keeper's notes."""

    def room(self) -> int | None:
        """Bytes of memory that the server may still use, if that is known."""

    def log(self) -> str: ...

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Writes the whole log, and goes on where it is followed."""

    def there(self) -> bool:
        """Whether anything is left of a server, which may hold its ports."""

    def find_held_ports(self) -> set[int]:
        """By what was started from this checkout, besides the server that is noted."""

    def stop(self) -> bool:
        """Ends it and removes what it left; returns whether there was a server."""


def why_not_ready(notes: Mapping[str, Any]) -> str | None:
    """By its keeper's notes."""
    if notes.get("ready"):
        return None
    return str(notes.get("reason", "its keeper has written no notes"))
