"""Switches several servers from one version to another: each is replaced by one that nobody
asks until it has passed the proof, and the next only when that one has been judged."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.rollout.counts import read_counts
from scripts.rollout.verdict import Seen
from scripts.server.layouts import fingerprint, lay_out, layout
from scripts.server.recover import candidate_of
from scripts.server.served import brings_up
from scripts.server.triton import triton_api
from scripts.stacks import state
from scripts.stacks.many_servers import ManyServers
from scripts.stacks.state import State

# Balancers ask DNS each second, and a server every other.
SEEN_S = 60


@dataclass(frozen=True)
class Fleet:
    stack: ManyServers
    server: State
    old: Version
    new: Version

    def start_beside(self, percent: float) -> None:
        """Starts servers with the new version, this share as many as there are and at least one,
        which nobody asks but the others: `tell_of_candidate`."""
        self._lay_out(self.new)
        count = max(1, round(percent / 100 * (self.stack.replicas or 1)))
        self.stack.try_out(self._switch_back(), count)

    @property
    def candidate(self) -> str:
        return candidate_of(self.new.pipeline)

    def tell_of_candidate(self, percent: float, seconds: float) -> None:
        """Each live server sends it this share of its clients' requests, for so long."""
        new = self.stack.find_serving(self._switch_back().fingerprint)
        told = {
            "model": self.new.pipeline.ensemble,
            "version": str(self.new.number),
            "servers": [task.beside for task in new],
            "share": percent,
            "seconds": seconds,
        }
        self._tell(told)

    def end_candidate(self) -> None:
        told = {"model": self.new.pipeline.ensemble, "version": str(self.new.number)}
        with suppress(UserError):
            self._tell(told)

    def _tell(self, told: dict[str, Any]) -> None:
        for address in self.find_live():
            try:
                triton_api.post(address, "/candidates", told)
            except triton_api.Missing:
                raise UserError(
                    "the servers are of a bundle before, which shares no requests",
                    f"replace them first: {brings_up(self.new.pipeline)}",
                ) from None
            except UserError:  # one that ends; another one comes, and is told the next time
                continue

    def find_live(self) -> list[Address]:
        return self.find_addresses(self.servers[self.old.number])

    @property
    def servers(self) -> dict[int, list[str]]:
        """Which have which version."""
        found: dict[int, list[str]] = {self.old.number: [], self.new.number: []}
        for task in self.stack.servers():
            if task.runs:
                is_old = task.fingerprint == self.server.fingerprint
                found[(self.old if is_old else self.new).number].append(task.address)
        return found

    def replace_each(self) -> Iterator[str]:
        """Each new server, when the balancer sees it; the next when it is asked for."""
        self._lay_out(self.new)
        for task in self.stack.replace_each(self._switch_back()):
            self._wait_until_seen([task.address])
            yield task.address

    def read_counts(self, servers: Sequence[str]) -> Seen:
        """What they answered to whoever asked this pipeline, as their doors say."""
        name, address = self.new.pipeline.ensemble, self.server.http
        return sum(
            (read_counts(replace(address, server=each), name) for each in servers), Seen(0, 0)
        )

    def _wait_until_seen(self, servers: Sequence[str]) -> None:
        with console.waiting("waiting for the balancer to see it") as waiting:
            while not all(map(self._can_reach, servers)):
                if waiting.seconds > SEEN_S:
                    raise UserError("the balancer does not see its servers", "see make logs")
                time.sleep(0.2)

    def find_addresses(self, servers: Sequence[str]) -> list[Address]:
        """Of those that are reached."""
        found = []
        for each in servers:
            with suppress(OSError):
                found.append(self.stack.find_address(self.server, each))
        return found

    def _can_reach(self, server: str) -> bool:
        try:
            with self._open(server, "/v2/health/ready") as answer:
                there = self.stack.find_address(self.server, server)
                return there.is_of(answer.headers)
        except OSError:
            return False

    def _open(self, server: str, path: str) -> Any:
        there = self.stack.find_address(self.server, server)
        return there.open(urllib.request.Request(f"{there.url}{path}"), timeout=5)

    def turn(self) -> None:
        """Each has been replaced; from now on their engine keeps them so by itself."""
        self.stack.start(self._switch_back())

    def back(self, failing: bool = False) -> None:
        """`failing`: rather a server fewer meanwhile than one that fails."""
        refused = self._switch_back().fingerprint
        if refused != self.server.fingerprint:  # else nothing was laid out yet
            self.stack.keep_log(refused)
        self._lay_out(self.old)
        if state.load() == self.server:  # the new one never came to serve
            self.stack.go_back(self.server, out_first=failing)
        else:
            self.stack.start(self.server)

    def _switch_back(self) -> State:
        loads = self.server.pipelines | {self.new.pipeline.ensemble: self.new.number}
        return with_pipelines(self.stack, self.server, loads)

    def _lay_out(self, version: Version) -> None:
        how = layout(self.server.settings_at_start.fill_from(version.settings), CPU)
        lay_out(version, how, live.REPOSITORY)
        live.leave_only(version)


def with_pipelines(stack: ManyServers, server: State, loads: Mapping[str, int]) -> State:
    mark = fingerprint(stack, server.settings_at_start, loads)
    return replace(server, fingerprint=mark, pipelines=dict(loads))
