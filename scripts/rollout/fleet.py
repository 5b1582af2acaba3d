"""Switches the servers of a swarm from one version to another: each is replaced by one that nobody
asks until it has passed the proof. The swarm does it by itself, and goes back by itself at the
first one that does not pass."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.server import in_each
from scripts.server.layouts import lay_out, layout
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
        loads = self.server.pipelines | {self.new.pipeline.ensemble: self.new.number}
        self.stack.start(in_each.with_pipelines(self.stack, self.server, loads))

    def back(self) -> None:
        self._lay_out(self.old)
        if state.load() == self.server:  # the new one never came to serve
            self.stack.go_back(self.server)
        else:
            self.stack.start(self.server)

    def _lay_out(self, version: Version) -> None:
        how = layout(self.server.started_with.over(version.settings), CPU)
        lay_out(version, how, live.REPOSITORY)
        live.leave_only(version)
