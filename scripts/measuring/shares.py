"""Which of many servers answered how much. Pure functions on numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scripts.measuring.measurement import Measurement

Shares = dict[str, dict[str, int]]


def count_shares(measurements: Sequence[Measurement]) -> Shares:
    """By protocol and server, the requests of all rounds; empty if there is one server."""
    found: dict[str, Counter[str]] = {}
    for one in measurements:
        for sample in one.samples:
            if sample.answered:
                found.setdefault(one.configuration.protocol, Counter()).update(sample.answered)
    return {protocol: dict(sorted(counted.items())) for protocol, counted in found.items()}


def rows(shares: Shares) -> list[tuple[str, str, int, float]]:
    """Protocol, server, requests, and their share of the protocol's."""
    return [
        (protocol, server, count, count / max(1, sum(counted.values())))
        for protocol, counted in shares.items()
        for server, count in counted.items()
    ]
