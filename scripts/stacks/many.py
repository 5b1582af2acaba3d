"""Where several servers run, which a change replaces one after the other: what the rest of the
bundle asks of an extension's stack of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bundle_serving.address import Address
from scripts.repository.archive import Version
from scripts.settings.settings import Settings
from scripts.stacks.state import State

if TYPE_CHECKING:
    from bundle_serving.infer import Answer  # which loads numpy


class Many(Protocol):
    def list_pipelines(self, settings: Settings, version: Version) -> dict[str, int]:
        """That each server is to load when it starts: ensembles, with their versions."""

    def load(self, server: State, version: Version) -> State:
        """Into each server, unless they have it."""

    def unload(self, server: State, ensemble: str) -> None: ...

    def find_addresses(self, server: State) -> dict[str, Address]:
        """Of each server, by its name."""

    def scale(self, server: State, replicas: int) -> None: ...

    def go_back(self, server: State) -> None:
        """After a switch that was interrupted."""

    def make_switch(
        self, running: Any, new: Version, answers: Sequence[Answer], contest: Any
    ) -> Any:
        """A `scripts.rollout.rollout.Switching`."""

    def show(self) -> None:
        """On which nodes they are, and what is wrong there."""
