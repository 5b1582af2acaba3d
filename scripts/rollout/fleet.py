"""Switches several servers from one version to another: each is replaced by one that nobody
asks until it has passed the proof, and the next only when that one has been judged by what it
answers beside the others."""

import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes.layout import CPU
from scripts.repository.archive import Version
from scripts.rollout import rollout
from scripts.rollout.counts import Clients, read_counts
from scripts.rollout.rollout import Refused
from scripts.rollout.stream import Stream
from scripts.rollout.switch import Proved, Running
from scripts.rollout.verdict import Agreement, Figures, Seen
from scripts.server.evaluating import One
from scripts.server.layouts import fingerprint, lay_out_alone
from scripts.server.served import brings_up
from scripts.server.triton import triton_api
from scripts.stacks import state
from scripts.stacks.many_servers import ManyServers
from scripts.stacks.state import State

# Balancers ask DNS each second, and a server every other.
SEEN_S = 60
# So long what servers are told of a candidate holds: if this command is killed, no client asks it
# any more after that.
HOLDS_S = 15.0
# And while labelled data is asked, when none does.
LABELLED_S = 600


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

    def tell_of_candidate(self, percent: float, seconds: float) -> None:
        """Each live server sends it this share of its clients' requests, for so long."""
        new = self.stack.find_serving(self._switch_back().fingerprint)
        self._tell(servers=[task.beside for task in new], share=percent, seconds=seconds)

    def end_candidate(self) -> None:
        with suppress(UserError):
            self._tell()

    def _tell(self, **said: Any) -> None:
        told = {"model": self.new.pipeline.ensemble, "version": str(self.new.number), **said}
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
            self._wait_until_seen(task.address)
            yield task.address

    def read_counts(self, servers: Sequence[str]) -> Seen:
        """What they answered to clients of this pipeline, as their doors say."""
        name, address = self.new.pipeline.ensemble, self.server.http
        return sum(
            (read_counts(replace(address, server=each), name) for each in servers), Seen(0, 0)
        )

    def _wait_until_seen(self, server: str) -> None:
        with console.waiting("waiting for the balancer to see it") as waiting:
            while not self._can_reach(server):
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
            there = self.stack.find_address(self.server, server)
            asked = urllib.request.Request(f"{there.url}/v2/health/ready")
            with there.open(asked, timeout=5) as answer:
                return there.is_of(answer.headers)
        except OSError:
            return False

    def turn(self) -> None:
        """Each has been replaced; from now on their engine keeps them so by itself."""
        self.stack.start(self._switch_back())

    def back(self, failing: bool = False) -> None:
        """`failing`: rather a server fewer meanwhile than one that fails."""
        refused = self._switch_back().fingerprint
        self._lay_out(self.old)
        if refused != self.server.fingerprint:  # else nothing was laid out yet
            self.stack.keep_log(refused)
        if state.load() == self.server:  # the new one never came to serve
            self.stack.go_back(self.server, out_first=failing)
        else:
            self.stack.start(self.server)

    def _switch_back(self) -> State:
        loads = self.server.pipelines | {self.new.pipeline.ensemble: self.new.number}
        return with_pipelines(self.stack, self.server, loads)

    def _lay_out(self, version: Version) -> None:
        settings = self.server.settings_at_start.fill_from(version.settings)
        lay_out_alone(version, settings, CPU)


def with_pipelines(stack: ManyServers, server: State, loads: Mapping[str, int]) -> State:
    mark = fingerprint(stack, server.settings_at_start, loads)
    return replace(server, fingerprint=mark, pipelines=dict(loads))


@dataclass(frozen=True)
class FleetSwitch:
    fleet: Fleet
    running: Running
    proved: Proved

    def carry_out(self, stream: Stream, canary: float | None, least: float) -> str:
        seconds, ratio = self.running.settings.watch_seconds, self.running.settings.max_p99_ratio
        old, new = self.fleet.old, self.fleet.new
        if least:
            with console.waiting(f"asking {old.title} {len(stream.questions)} requests"):
                model, questions = new.pipeline.ensemble, stream.questions
                live = [*rollout.ask_uncounted(self.running, model, questions)]
            proved = self.proved.answers[: len(stream.questions)]
            found = Agreement.from_gists(rollout.gists(old, live), rollout.gists(new, proved))
            rollout.require_agreement(found, new, least)
        before = rollout.watch(stream, seconds, f"version {old.number} alone, for comparison")
        contest = self.proved.contest
        labelled = contest.ask_all(old, new.pipeline.ensemble) if contest else None
        if canary:
            self._try_out(stream, canary, labelled)
            labelled = None
        mark, began = stream.mark(), time.monotonic()
        usual = self.fleet.read_counts(self.fleet.servers[old.number])
        came, after = set[str](), before
        for server in self.fleet.replace_each():
            if not came:
                there = self.fleet.find_addresses([server])[0]
                self._judge_labelled(labelled, new.pipeline.ensemble, there)
            came.add(server)
            others = self.fleet.servers[old.number]
            # Beside the others it is compared with them; at the end, with what was before.
            beside = {old.number: others, new.number: [server] if others else []}
            stream.servers = {each: self.fleet.find_addresses(of) for each, of in beside.items()}
            stream.candidate, stream.share = (new.pipeline.ensemble, new.number), 0.5
            if not others:
                stream.serves, stream.candidate = new.number, None
            what = f"version {new.number} on {len(came)} of {len(came) + len(others)} servers"
            clients = partial(_clients_objection, self.fleet, [*came], others, usual)
            earlier = None if others else before
            after = rollout.judge(stream, what, new.number, seconds, ratio, earlier, clients)
            stream.candidate, stream.servers = None, {}
            if not came <= {*self.fleet.servers[new.number]}:
                raise Refused(new.number, "one of its servers ended")
        meanwhile = Figures.from_answers(stream.answers_since(mark))
        if meanwhile.failed:
            raise Refused(new.number, f"{meanwhile.failed} requests failed while it came")
        self.fleet.turn()
        took = time.monotonic() - began
        return f"all servers in {took:.0f} s, p99 {before.p99:.0f} -> {after.p99:.0f} ms"

    def back(self, failing: bool = False) -> None:
        self.fleet.back(failing)

    def _judge_labelled(
        self, live: list[One[Any]] | None, model: str, only: Address | None = None
    ) -> None:
        if (contest := self.proved.contest) and live:
            rollout.compare_labelled(contest, live, self.running, self.fleet.new, model, only)

    def _try_out(self, stream: Stream, canary: float, labelled: list[One[Any]] | None) -> None:
        """Some servers with the new version, which the others send this share of their clients'
        requests, and ours."""
        settings, new = self.running.settings, self.fleet.new
        self.fleet.start_beside(canary)
        servers = self.fleet.servers[new.number]
        try:
            self.fleet.tell_of_candidate(0, LABELLED_S)
            self._judge_labelled(labelled, new.pipeline.candidate)
            clients = CanarysClients(self.fleet, canary)
            stream.candidate = new.pipeline.candidate, new.number
            stream.share = canary / 100
            what = f"version {new.number} on {len(servers)} of its own, {canary:g}% of the requests"
            seconds, ratio = settings.watch_seconds * rollout.CANARY_TIMES, settings.max_p99_ratio
            rollout.judge(stream, what, new.number, seconds, ratio, None, clients.find_objection)
        finally:
            stream.candidate, stream.share = None, 0
            self.fleet.end_candidate()
        if self.fleet.servers[new.number] != servers:
            raise Refused(new.number, "one of its servers ended")


class CanarysClients:
    """Those of the live servers, who are told of the candidate as long as it is watched."""

    def __init__(self, fleet: Fleet, percent: float) -> None:
        self._fleet, self._percent = fleet, percent
        self._live, self._told = fleet.find_live(), -HOLDS_S
        pipeline, live = fleet.new.pipeline, lambda: self._live
        names = pipeline.ensemble, pipeline.candidate
        self._counted = Clients(live, *names, fleet.new.number)

    def find_objection(self) -> str | None:
        if time.monotonic() > self._told + HOLDS_S / 3:
            self._live = self._fleet.find_live()
            self._fleet.tell_of_candidate(self._percent, HOLDS_S)
            self._told = time.monotonic()
        return self._counted.find_objection()


def _clients_objection(
    fleet: Fleet, new: Sequence[str], others: Sequence[str], usual: Seen
) -> str | None:
    return fleet.read_counts(new).objection(fleet.read_counts(others) if others else usual)
