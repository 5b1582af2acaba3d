"""What the final comparison means, and whether .env changes."""

from __future__ import annotations

from datetime import date

from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.tuning.goal import Goal, Score
from scripts.tuning.search import Candidate


def conclude(
    settings: Settings,
    goal: Goal,
    winner: Candidate,
    start: Candidate,
    scores: dict[Candidate, Score],
    circumstances: str,
) -> int:
    if start not in scores:
        raise UserError(
            "no other settings could be served beside the current ones",
            "the lines above say why; .env is unchanged",
        )
    new, old = scores[winner], scores[start]
    if not new.throughput:
        raise UserError(
            "no answers were counted with any settings",
            "allow more time, such as MINUTES=15; .env is unchanged",
        )
    if not goal.is_met(new):
        raise UserError(
            f"no settings answer 95% within {goal.latency_ms:g} ms (best: {new.p95:.0f} ms)",
            "allow more time, or use a smaller network; .env is unchanged",
        )
    if not goal.beats(new, old):
        console.note(f"nothing beats the current settings ({old}); .env is unchanged")
        return 0
    figures = f"{new}, was {old}"
    change = {name: value for name, value in winner.settings.items() if value != settings[name]}
    dotenv_file.change(change, f"make tune: {date.today()}: {figures} ({goal}; {circumstances})")
    console.note(f"{winner}: {figures}")
    console.note(f".env now says {', '.join(f'{k}={v}' for k, v in change.items())}")
    console.note("apply them: make up")
    return 0
