"""A run's figures as files, JSON for later comparisons and CSV for spreadsheets; and what changed
since an earlier run, as ratios."""

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.artefacts.manifest import differences
from scripts.base.errors import UserError
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import PERCENTILES, Measurement
from scripts.measuring.workload import CASCADE

KIND = "triton-bundle benchmark"
SCHEMA = 1
LATENCIES = ("mean", *PERCENTILES)


def as_dict(when: str, about: dict[str, Any], measurements: list[Measurement]) -> dict[str, Any]:
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "when": when,
        **about,
        "measurements": [_measurement(one) for one in measurements],
    }


def _measurement(one: Measurement) -> dict[str, Any]:
    """Without a figure, if a request failed."""
    asked = one.configuration
    flow, speed = one.waterfall, asdict(one.throughput)
    if one.failure:
        del speed["median"]
    return {
        "name": asked.name,
        "target": asked.target.label,
        "inputs": asked.inputs.name,
        "protocol": asked.protocol,
        "batch": asked.batch,
        "concurrency": asked.concurrency,
        "stable": one.stable,
        "why_unstable": one.why_unstable,
        "requests": one.requests,
        "throughput": speed,
        "latency_ms": None if one.failure else {n: asdict(getattr(one, n)) for n in LATENCIES},
        "cpu_ms": one.cpu_ms,
        "waterfall_ms": flow.as_dict() if flow and not one.failure else None,
        "rounds": [_round(sample) for sample in one.samples],
    }


def _round(sample: Any) -> dict[str, Any]:
    shown = {name: value for name, value in asdict(sample).items() if name != "counted"}
    return shown if sample.answered else {n: v for n, v in shown.items() if n != "answered"}


def load(path: Path) -> dict[str, Any]:
    remedy = "give the results.json of an earlier make bench"
    try:
        results: dict[str, Any] = json.loads(path.read_text())
        known = results["kind"] == KIND and results["schema"] == SCHEMA
    except OSError:
        raise UserError(f"COMPARE={path} cannot be read", remedy) from None
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UserError(f"COMPARE={path} is not a result of this benchmark", remedy)
    return results


COLUMNS = (
    *("target", "inputs", "protocol", "batch", "concurrency", "stable", "requests"),
    *("pictures_per_second", "pictures_per_second_low", "pictures_per_second_high"),
    *(f"{name}_ms" for name in LATENCIES),
    "processor_ms_per_picture",
)
OF_A_CASCADE = ("threshold", "passed_on", "top1_agreement")  # the last two are shares


def as_csv(results: dict[str, Any]) -> str:
    """Where a request failed, cells are empty."""
    text = io.StringIO()
    columns = (*COLUMNS, *(OF_A_CASCADE if "cascade" in results else ()))
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for one in results["measurements"]:
        speed, latency = one["throughput"], one["latency_ms"] or {}
        table.writerow(
            one
            | {
                "pictures_per_second": speed.get("median", ""),
                # Of no round at all, both are 0.
                "pictures_per_second_low": speed["low"] if speed["high"] else "",
                "pictures_per_second_high": speed["high"] or "",
                **{f"{name}_ms": latency[name]["median"] for name in latency},
                "processor_ms_per_picture": sum(one["cpu_ms"].values()) or "",
                **_division(one, results),
            }
        )
    return text.getvalue()


def _division(one: dict[str, Any], results: dict[str, Any]) -> dict[str, float]:
    if one["target"] != CASCADE:
        return {}
    found = results["cascade"]["pictures"][one["inputs"]]
    return {
        "threshold": results["cascade"]["threshold"],
        "passed_on": found["passed_on"] / found["pictures"],
        "top1_agreement": found["agree"] / found["pictures"],
    }


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
    both = (("then", old), ("now", new))
    if failed := [when for when, one in both if any(each["failure"] for each in one["rounds"])]:
        return Change(new["name"], None, None, f"failed {' and '.join(failed)}")
    throughput, p50 = (
        Estimate.ratio_of(*([each[name] for each in one["rounds"]] for one in (new, old)))
        for name in ("throughput", "p50")
    )
    return Change(new["name"], throughput, p50)
