"""Clients with sessions, who each should meet one version of two, at whichever server."""

import http.client
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

from bundle_door.paths.candidates import SESSION_ID, is_chosen
from bundle_door.requests import ANSWERED_BY, Request
from bundle_door.served import Candidate

SESSIONS = [f"session {number}" for number in range(40)]


@dataclass
class Sessions:
    # How often each was answered by which candidate; "" is the live version.
    met: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def count(self, version: str) -> int:
        return sum(versions[version] for versions in self.met.values())

    def list_met(self, version: str) -> set[str]:
        return {session for session, versions in self.met.items() if versions[version]}


def list_chosen(model: str, version: str, share: float) -> set[str]:
    candidate = Candidate(model, version, share)
    return {
        each for each in SESSIONS if is_chosen(Request("POST", "/", {SESSION_ID: each}), candidate)
    }


@contextmanager
def asked_by_sessions(
    connect: Sequence[Callable[[], http.client.HTTPConnection]],
    headers: dict[str, str],
    body: bytes,
) -> Iterator[Sessions]:
    """One after the other, each at one address after the other, until the block ends."""
    seen, stop = Sessions(), threading.Event()

    def ask() -> None:
        for session, number in zip(itertools.cycle(SESSIONS), itertools.count(), strict=False):
            if stop.wait(0.02):
                return
            with closing(connect[number // len(SESSIONS) % len(connect)]()) as connection:
                try:
                    connection.request("POST", "/classify", body, headers | {SESSION_ID: session})
                    answer = connection.getresponse()
                    said = answer.read()
                except (OSError, http.client.HTTPException) as fault:
                    seen.faults.append(repr(fault))
                    continue
            if answer.status != 200:
                seen.faults.append(f"{answer.status} {said!r}")
            version = answer.headers.get(ANSWERED_BY, "")
            seen.met.setdefault(session, Counter())[version] += 1

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        with suppress(RuntimeError):
            thread.join(60)
    assert seen.faults == []
