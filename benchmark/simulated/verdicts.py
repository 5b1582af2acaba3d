"""Are verdicts as certain as they say? Simulated rollouts, judged as `make rollout EVAL=` does at
250 moments each, until it is certain. `--differing`: the share that only one version gets right.

    python -m benchmark.simulated.verdicts [--rollouts 1000] [--items 10000] [--differing 0.04]

Prints a table for docs/measuring/eval.md, and ends with 1 if a claim is wrong more often than
stated, or a version that is worse by 2 points is found in less than 95%.
"""

from collections import Counter
from math import isfinite

import numpy as np

from scripts.artefacts.exporting import start
from scripts.evaluation.scores import Paired
from scripts.evaluation.sequential import CERTAINTY, Drop, find_quantile_bounds

MOST_DROP = 0.01
MOMENTS = 250
LOOKS = (50, 100, 200, 500, 1000, 2000)
P99 = 0.99


def simulate(
    drop: float, differing: float, rollouts: int, items: int, random: np.random.Generator
) -> tuple[Counter[str], list[int], int]:
    """The verdicts, the items that they took, and how often an interval for a fixed number of items
    would have called it worse."""
    verdicts, took, fooled = Counter[str](), list[int](), 0
    moments = np.unique(np.geomspace(10, items, MOMENTS).astype(int))
    only_first = (differing + drop) / 2
    for _ in range(rollouts):
        drawn = random.random(items)
        first = np.cumsum(drawn < only_first)
        second = np.cumsum(drawn > 1 - (differing - only_first))
        counts = [(int(first[each - 1]), int(second[each - 1]), int(each)) for each in moments]
        found, asked = "undecided", items
        for each in counts:
            if (found := Drop(*each).judge(MOST_DROP)) != "undecided":
                asked = each[2]
                break
        verdicts[found] += 1
        took.append(asked)
        fooled += any(Paired(*each).low > MOST_DROP for each in counts)
    return verdicts, took, fooled


def simulate_quantiles(streams: int, random: np.random.Generator) -> tuple[int, int]:
    """How many of the intervals of p99 did not hold at some look, and how many had an end above at
    the last one."""
    missed = ended = 0
    true = float(np.exp(3 + 0.5 * 2.3263478740408408))
    for _ in range(streams):
        times = np.exp(random.normal(3, 0.5, LOOKS[-1]))
        bounds = [find_quantile_bounds(times[:count], P99) for count in LOOKS]
        missed += any(high < true for _, high in bounds) + any(low > true for low, _ in bounds)
        ended += isfinite(bounds[-1][1])
    return missed, ended


def main(rollouts: int = 1000, items: int = 10_000, differing: float = 0.04) -> int:
    random, of, holds = np.random.default_rng(0), rollouts, True
    print(
        "| the candidate is | promoted | rejected | cannot tell | items | fixed interval rejects |"
    )
    print("|---|---|---|---|---|---|")
    for drop in (0, MOST_DROP, 0.02, 0.03):
        verdicts, took, fooled = simulate(drop, differing, of, items, random)
        fine, worse, open_ = (verdicts[each] / of for each in ("fine", "worse", "undecided"))
        middle, most = np.percentile(took, (50, 95))
        what = f"worse by {100 * drop:g}" if drop else "equal"
        print(
            f"| {what} | {fine:.1%} | {worse:.1%} | {open_:.1%} | {middle:,.0f} ({most:,.0f}) "
            f"| {fooled / of:.1%} |"
        )
        holds &= drop > MOST_DROP or worse <= 1 - CERTAINTY
        holds &= drop < MOST_DROP or fine <= 1 - CERTAINTY
        holds &= drop < 0.02 or worse >= 0.95
    missed, ended = simulate_quantiles(of, random)
    print(
        f"p99: {missed} of {2 * of:,} bounds did not hold at one of the looks after {LOOKS} "
        f"answers; {ended:,} of {of:,} had an upper one at the last"
    )
    holds &= missed <= 2 * of * (1 - CERTAINTY)
    return 0 if holds else 1


if __name__ == "__main__":
    start(main)
