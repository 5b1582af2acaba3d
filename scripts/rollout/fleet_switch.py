"""The switch of several servers, one after the other, each judged by what it answers beside the
others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bundle_serving.address import Address
from bundle_serving.infer import Answer
from scripts.base import console
from scripts.rollout.counts import Clients
from scripts.rollout.fleet import Fleet
from scripts.rollout.labelled import Contest
from scripts.rollout.rollout import (
    CANARY_TIMES,
    Refused,
    Up,
    ask_version,
    compare_labelled,
    gists,
    judge,
    require_agreement,
    watch,
)
from scripts.rollout.stream import Stream
from scripts.rollout.verdict import Agreement, Figures, Seen
from scripts.server.evaluating import One

# So long what servers are told of a candidate holds: if this command is killed, no client asks it
# any more after that.
HOLDS_S = 15.0
# And while labelled data is asked, when none does.
LABELLED_S = 600


@dataclass(frozen=True)
class FleetSwitch:
    fleet: Fleet
    running: Up
    # What the new version answered where it was compared with PyTorch's answers.
    answers: Sequence[Answer]
    contest: Contest | None = None  # on labelled data

    def carry_out(self, stream: Stream, canary: float | None, least: float) -> str:
        seconds, ratio = self.running.settings.watch_seconds, self.running.settings.max_p99_ratio
        old, new = self.fleet.old, self.fleet.new
        if least:
            with console.waiting(f"asking {old.title} {len(stream.questions)} requests"):
                asked = ask_version(self.running, new.pipeline.ensemble, old, stream.questions)
                live = [*asked]
            proved = self.answers[: len(stream.questions)]
            found = Agreement.from_gists(gists(old, live), gists(new, proved))
            require_agreement(found, new, least)
        before = watch(stream, seconds, f"version {old.number} alone, for comparison")
        labelled = self.contest.ask_all(old, new.pipeline.ensemble) if self.contest else None
        if canary:
            self._try_out(stream, canary, labelled)
            labelled = None
        mark, began, usual = (
            stream.mark(),
            time.monotonic(),
            self.fleet.read_counts(self.fleet.servers[old.number]),
        )
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
            of_old = (None, None) if others else (before, usual)
            clients = partial(_clients_objection, self.fleet, [*came], others, of_old[1])
            after = judge(stream, what, new.number, seconds, ratio, of_old[0], clients)
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
        if self.contest and live:
            compare_labelled(self.contest, live, self.running, self.fleet.new, model, only)

    def _try_out(self, stream: Stream, canary: float, labelled: list[One[Any]] | None) -> None:
        """Some servers with the new version, which the others send this share of their clients'
        requests, and ours."""
        seconds, new = self.running.settings.watch_seconds, self.fleet.new
        self.fleet.start_beside(canary)
        servers = self.fleet.servers[new.number]
        try:
            self.fleet.tell_of_candidate(0, LABELLED_S)
            self._judge_labelled(labelled, self.fleet.candidate)
            clients = CanarysClients(self.fleet, canary)
            stream.candidate, stream.share = (self.fleet.candidate, new.number), canary / 100
            what = f"version {new.number} on {len(servers)} of its own, {canary:g}% of the requests"
            judge(
                stream,
                what,
                new.number,
                seconds * CANARY_TIMES,
                self.running.settings.max_p99_ratio,
                clients_objection=clients.find_objection,
            )
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
        new, live = fleet.new, lambda: self._live
        self._counted = Clients(live, new.pipeline.ensemble, fleet.candidate, new.number)

    def find_objection(self) -> str | None:
        if time.monotonic() > self._told + HOLDS_S / 3:
            self._live = self._fleet.find_live()
            self._fleet.tell_of_candidate(self._percent, HOLDS_S)
            self._told = time.monotonic()
        return self._counted.find_objection()


def _clients_objection(
    fleet: Fleet, new: Sequence[str], others: Sequence[str], before: Seen | None
) -> str | None:
    return fleet.read_counts(new).objection(before or fleet.read_counts(others))
