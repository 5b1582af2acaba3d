"""Switches the servers of a swarm from one version to another: each is replaced by one that nobody
asks until it has passed the proof. The swarm does it by itself, and goes back by itself at the
first one that does not pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.server import up
from scripts.stacks import state
from scripts.stacks.state import State
from scripts.stacks.swarm import SwarmStack
from scripts.storage.shared import Shared


@dataclass(frozen=True)
class Fleet:
    stack: SwarmStack
    server: State
    old: Version
    new: Version
    shared: Shared

    def turn(self) -> None:
        self._lay_out(self.new)
        fingerprint = up.fingerprint(self.stack, self.server.started_with)
        self.stack.start(replace(self.server, fingerprint=fingerprint))

    def back(self) -> None:
        self._lay_out(self.old)
        if state.load() == self.server:  # the new one never came to serve
            self.stack.go_back(self.server)
        else:
            self.stack.start(self.server)

    def _lay_out(self, version: Version) -> None:
        layout = up.layout(self.server.started_with.over(version.settings), CPU)
        up.lay_out(version, layout, live.REPOSITORY)
        live.leave_only(version)
