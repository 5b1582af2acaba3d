"""Switches the servers of a swarm from one version to another: each is replaced by one that nobody
asks until it has passed the proof. The swarm does it by itself, and goes back by itself at the
first one that does not pass."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass, replace

from bundle_serving.address import SERVER_HEADER
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.server import in_each
from scripts.server.layouts import lay_out, layout
from scripts.stacks import state
from scripts.stacks.stack_file import CANARY, SERVER
from scripts.stacks.state import State
from scripts.stacks.swarm import SwarmStack
from scripts.storage.shared import Shared

# The balancers ask DNS each second, and a server every other.
SEEN_S = 60


@dataclass(frozen=True)
class Fleet:
    stack: SwarmStack
    server: State
    old: Version
    new: Version
    shared: Shared

    def beside(self, percent: float) -> None:
        """Starts servers with the new version, this share as many as there are and at least one;
        they take their part of all requests."""
        self._lay_out(self.new)
        count = max(1, round(percent / 100 * (self.stack.replicas or 1)))
        self.stack.try_out(self._turned(), count)
        with console.waiting("waiting for the balancer to see them") as waiting:
            while not all(map(self._reached, self.servers[self.new.number])):
                if waiting.seconds > SEEN_S:
                    raise UserError("the balancer does not see its servers", "see make logs")
                time.sleep(0.2)

    @property
    def servers(self) -> dict[int, list[str]]:
        """Which have which version."""
        of = {self.old.number: SERVER, self.new.number: CANARY}
        return {
            version: [each.address for each in self.stack.tasks(service) if each.runs]
            for version, service in of.items()
        }

    def _reached(self, server: str) -> bool:
        there = replace(self.server.http, server=server)
        asked = urllib.request.Request(f"{there.url}/v2/health/ready")
        try:
            with there.open(asked, timeout=5) as answer:
                return bool(answer.headers[SERVER_HEADER] == server)
        except OSError:
            return False

    def turn(self) -> None:
        self._lay_out(self.new)
        self.stack.start(self._turned())

    def back(self) -> None:
        self._lay_out(self.old)
        if state.load() == self.server:  # the new one never came to serve
            self.stack.go_back(self.server)
        else:
            self.stack.start(self.server)

    def _turned(self) -> State:
        loads = self.server.pipelines | {self.new.pipeline.ensemble: self.new.number}
        return in_each.with_pipelines(self.stack, self.server, loads)

    def _lay_out(self, version: Version) -> None:
        how = layout(self.server.started_with.over(version.settings), CPU)
        lay_out(version, how, live.REPOSITORY)
        live.leave_only(version)
