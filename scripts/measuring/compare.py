"""What changed since an earlier run, as ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scripts.artefacts.manifest import differences
from scripts.measuring.confidence import Estimate

# Other differences are what the user changed on purpose and wants to compare.
CIRCUMSTANCES = ("machine", "sent")
CAUSES = ("served", "settings", "models", "versions")


@dataclass(frozen=True)
class Change:
    """Ratio of new to old: throughput above 1 or latency below 1 is faster."""

    name: str
    throughput: Estimate | None
    p50: Estimate | None
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    when: str
    changes: list[Change]
    warnings: list[str]  # why a comparison would not be fair
    causes: list[str]  # settings that differ


def compare(old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    before = {one["name"]: one for one in old["measurements"]}
    return Comparison(
        old["when"],
        [_change(before[one["name"]], one) for one in new["measurements"] if one["name"] in before],
        [d for part in CIRCUMSTANCES for d in differences(old[part], new[part], part)],
        [d for part in CAUSES for d in differences(old[part], new[part], part)],
    )


def _change(old: dict[str, Any], new: dict[str, Any]) -> Change:
    failed = [when for when, one in (("then", old), ("now", new)) if _has_failed(one)]
    if failed:
        return Change(new["name"], None, None, f"failed {' and '.join(failed)}")
    throughput, p50 = (
        Estimate.ratio_of(*([each[name] for each in one["rounds"]] for one in (new, old)))
        for name in ("throughput", "p50")
    )
    return Change(new["name"], throughput, p50)


def _has_failed(one: dict[str, Any]) -> bool:
    return any(each["failure"] for each in one["rounds"])
