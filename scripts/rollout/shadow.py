"""A version that answers copies of real requests beside the live one, and is seen by nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bundle_serving.address import Address
from scripts.base import console, interrupts, lock, tables
from scripts.base.errors import UserError
from scripts.evaluation.sequential import CERTAINTY, count_share, find_lower_bound, find_upper_bound
from scripts.repository import history
from scripts.rollout.rollout import InPlace, prove
from scripts.rollout.switch import Running
from scripts.server.triton import triton_api

LOOK_S = 1.0
# So long after the end the first copy may still hang, as the door has it.
LAST_COPY_S = 15.0
MOST_SHOWN = 10
# As the door names them.
OUTCOMES = "same", "differs", "failed", "left out"


@dataclass(frozen=True)
class Seen:
    """Of the copies so far."""

    same: int = 0
    differ: int = 0
    failed: int = 0
    left_out: int = 0
    moved: float = 0.0
    changes: Sequence[dict[str, Any]] = ()
    seconds: Sequence[tuple[float, float]] = ()

    @classmethod
    def read(cls, address: Address, version: int) -> Seen:
        for told in triton_api.get(address, "/shadows"):
            if told["version"] == str(version):
                return cls.parse(told)
        return cls()

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Seen:
        """As the door tells it."""
        same, differ, failed, left_out = (told["counts"].get(name, 0) for name in OUTCOMES)
        moved, changes, seconds = told["moved"], told["changes"], told["seconds"]
        return cls(same, differ, failed, left_out, moved, changes, seconds)

    @property
    def answers(self) -> int:
        return self.same + self.differ

    @property
    def copies(self) -> int:
        return self.answers + self.failed

    def __str__(self) -> str:
        left = f", {self.left_out:,} left out" if self.left_out else ""
        return f"{self.copies:,} copies, {self.differ:,} differ, {self.failed:,} failed{left}"

    def describe(self) -> str:
        """With bounds that hold whenever it ends."""
        if not self.copies:
            busy = f"the server was busy, and {self.left_out:,} copies were left out"
            return f"no request was copied: {busy if self.left_out else 'nobody asked'}"
        differ = count_share(self.differ, max(self.answers, 1))
        low, high = find_lower_bound(differ), find_upper_bound(differ)
        failed = find_upper_bound(count_share(self.failed, self.copies))
        return (
            f"{self}; with {100 * CERTAINTY:g}% certainty between {100 * low:.1f}% and"
            f" {100 * high:.1f}% of the answers differ, and at most {100 * failed:.1f}% fail"
        )

    def find_objection(self, least_percent: float) -> str | None:
        if self.failed:
            return f"{self.failed:,} of {self.copies:,} copies of requests failed"
        agree = find_upper_bound(count_share(self.same, max(self.answers, 1)))
        if self.answers and 100 * agree < least_percent:
            return f"{self.describe()}, but MIN_AGREEMENT requires {least_percent:g}% alike"
        return None


def try_unseen(
    target: int, running: Running, percent: float, seconds: float, may_end_early: bool
) -> Seen:
    """Ends with the old version alone, whatever was seen. Ctrl-C ends it early, or, where a rollout
    begins with it, the rollout."""
    if running.stack.many:
        which = f"{running.version.pipeline.option} VERSION={target}"
        raise UserError(
            "copies are made by the door of one server, and here are several",
            f"send the version a share of the requests: make rollout{which} CANARY=10",
        )
    proved = prove(running, target, history.SHADOW, judge_labels=False)
    switch, seen = InPlace(running, proved), Seen()
    with tried_beside(switch, history.SHADOW, lambda: seen.describe(), is_unseen=True):
        seen = watch_copies(switch, percent, seconds, may_end_early)
    show(seen, target)
    return seen


@contextmanager
def tried_beside(
    switch: InPlace, how: str, describe: Callable[[], str], is_unseen: bool = False
) -> Iterator[None]:
    """Ends with the old version alone, whatever happens, and with what is to be said of the new
    one."""
    target, shared, why = switch.new.number, switch.shared, ""
    shared.begin(target, how)
    with lock.hands_off():
        try:
            switch.load_beside(is_unseen)
            yield
        except BaseException as fault:
            why = history.explain(fault)
            raise
        finally:
            with interrupts.ignore_interrupts():
                switch.back()
                shared.record(history.STAYED, target, how, why or describe())


def watch_copies(switch: InPlace, percent: float, seconds: float, may_end_early: bool) -> Seen:
    server = switch.running.server
    triton_api.post(server.http, "/shadows")
    switch.share_with_clients(0, copies=percent)
    seen = Seen()
    what = f"{switch.new.title} answers copies of {percent:g}% of the requests"
    try:
        with console.waiting(f"{what}, for {seconds:g} s (Ctrl-C: end)") as waiting:
            while waiting.seconds < seconds or (
                not seen.copies and waiting.seconds < seconds + LAST_COPY_S
            ):
                time.sleep(LOOK_S)
                seen = Seen.read(server.http, switch.new.number)
                waiting.show(str(seen))
                switch.require_well()
    except KeyboardInterrupt:
        if not may_end_early:
            raise
        console.note("ended early")
    return seen


def show(seen: Seen, target: int) -> None:
    console.say(f"version {target}, unseen: {seen.describe()}")
    if seen.answers:
        times = 1000 * np.array(seen.seconds)
        (live, candidate), (late, late_too) = np.percentile(times, [50, 99], axis=0)
        console.note(
            f"live: p50 {live:.0f} ms, p99 {late:.0f} ms; candidate, one copy at a time:"
            f" {candidate:.0f} ms, {late_too:.0f} ms; its probabilities moved by"
            f" {100 * seen.moved / seen.answers:.1f} points"
        )
    rows = [
        (str(each["count"]), each["live"], each["candidate"] or "no answer", ", ".join(each["ids"]))
        for each in seen.changes[:MOST_SHOWN]
    ]
    if rows:
        tables.show("rlll", ("times", "live", "candidate", "requests"), rows)
