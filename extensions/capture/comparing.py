"""What was answered then, and what is answered now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from bundle_door.settings import plain_class
from extensions.capture.replaying import Past, Present
from scripts.evaluation.sequential import (
    CERTAINTY,
    count_share,
    find_lower_bound,
    find_quantile_bounds,
    find_upper_bound,
)
from scripts.evaluation.share import Share

SURE = f"with {100 * CERTAINTY:g}% certainty"
MOST_SHOWN = 5


@dataclass(frozen=True)
class Compared:
    pasts: Sequence[Past]
    presents: Sequence[Present]
    labels: Mapping[str, str]  # by the id of the request

    def list_rows(self) -> list[tuple[str, str, str]]:
        then = [past.ms for past in self.pasts if not past.is_refused]
        now = [each.ms for each in self.presents if not each.fault]
        total = len(self.pasts)
        rows = [
            ("answered", f"{len(then):,}", f"{len(now):,}"),
            ("refused", f"{total - len(then):,}", f"{total - len(now):,}"),
            ("p50, ms", find_percentile(then, 50), find_percentile(now, 50)),
            ("p99, ms", find_percentile(then, 99), find_percentile(now, 99)),
        ]
        judged = [pair for pair in self._pairs if pair[0].id in self.labels]
        if judged:
            old = Share(sum(self._is_right(past, past.label) for past, _ in judged), len(judged))
            new = Share(sum(self._is_right(past, now.label) for past, now in judged), len(judged))
            rows.append(("right", f"{old.value:.1%}", f"{new.value:.1%}"))
        return rows

    @property
    def _pairs(self) -> list[tuple[Past, Present]]:
        return [*zip(self.pasts, self.presents, strict=True)]

    def _is_right(self, past: Past, label: str) -> bool:
        return plain_class(label) == plain_class(self.labels[past.id])

    def list_notes(self) -> list[str]:
        both = [(past, now) for past, now in self._pairs if past.label and not now.fault]
        changes: dict[tuple[str, str], list[str]] = {}
        for past, now in both:
            if past.label != now.label:
                changes.setdefault((past.label, now.label), []).append(past.id)
        told = [describe_changes(sum(map(len, changes.values())), len(both))] if both else []
        most = sorted(changes.items(), key=lambda each: -len(each[1]))[:MOST_SHOWN]
        told += [f"{len(ids):,} times {new}, not {old}, as in {ids[0]}" for (old, new), ids in most]
        times = [each.ms for each in self.presents if not each.fault]
        low, high = find_quantile_bounds(times, 0.99)
        if isfinite(high):
            told.append(f"{SURE} a p99 between {max(low, 0):.0f} and {high:.0f} ms")
        faults = Counter(each.fault for each in self.presents if each.fault)
        return told + [f"{count:,} times: {fault}" for fault, count in faults.most_common()]


def find_percentile(ms: Sequence[float], at: int) -> str:
    return f"{np.percentile(ms, at):.0f}" if ms else ""


def describe_changes(count: int, of: int) -> str:
    share = count_share(count, of)
    low, high = find_lower_bound(share), find_upper_bound(share)
    return (
        f"{count:,} of {of:,} labels changed; {SURE} between {100 * low:.1f}% and"
        f" {100 * high:.1f}% of such requests"
    )
