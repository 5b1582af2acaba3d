"""Each trial on a server that is harmed: what bystanders felt of it, and whether it came back."""

import time
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from benchmark.torture.bystanders import GRACE_S, Bystanders
from benchmark.torture.own_server import Own
from benchmark.torture.pictures import of_a_megabyte
from benchmark.torture.subject import Subject
from benchmark.torture.trials import Harmed, Progress, Trial, trials
from scripts.base import console
from scripts.recipes import pipelines

# Beyond it a server is not restored by itself.
RESTORED_S = 120
# What is to come back does within 60 s; where nothing has for 12, which is more than the door's and
# malloc's pauses, no more is waited for.
MEMORY_BACK_S, STEADY_S = 60, 12
REPEATS = 3
KEPT_BYTES = 100_000_000
# That bystanders may wait longer than usual while nothing of the server's own is taken away.
LONGER_S = 1.0
USUAL_S = 3
CLIENTS = 16


@dataclass(frozen=True)
class Row:
    name: str
    result: str
    fault: str
    asked: int
    failed: int
    failed_later: int
    longest: float
    memory: tuple[int, int, int]  # before, at most, after
    restored: float | None


def judge(
    subject: Subject, own: Own | None, scale: float, usual: float, left_out: Container[str] = ()
) -> Iterator[Row]:
    """One trial after the other, up to one from which the server does not come back."""
    before = subject.expected_processes()
    of_texts = [each for each in pipelines.every() if each.recipe.asked_about == "TEXT"]
    texts = {
        each.ensemble: name for each in of_texts if (name := subject.find_input(each.ensemble))
    }
    for trial in trials(sorted(before), texts, own, scale):
        if trial.name not in left_out:
            row = _run_trial(subject, trial, before, usual)
            console.note(_line(row))
            yield row
            if row.restored is None:
                return


def measure_usual(subject: Subject) -> float:
    """The longest wait of bystanders while nothing is done; after a load as from many clients, for
    which the server's processes take memory that they keep."""
    with console.waiting("measuring the usual waits"):
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(subject.ask_picture, [of_a_megabyte()] * 10 * CLIENTS))
        with Bystanders(subject) as undisturbed:
            time.sleep(USUAL_S)
    return undisturbed.longest


def _run_trial(subject: Subject, trial: Trial, before: Mapping[str, int], usual: float) -> Row:
    fault, result, held = "", "", subject.memory()
    with console.waiting(trial.name) as waiting, Bystanders(subject) as bystanders:
        began = time.monotonic()
        try:
            result = trial.run(subject, _seldom(waiting.show))
        except (Harmed, ConnectionError, TimeoutError) as harmed:
            fault = str(harmed) or type(harmed).__name__
        restored = subject.until_whole(before, RESTORED_S)
    after = _until_back(subject, held) if restored is not None else 0
    later = bystanders.count_failed(since=began + GRACE_S)
    if restored is None:
        fault = fault or f"not restored within {RESTORED_S} s"
    elif after > held + KEPT_BYTES and _repeat(subject, trial, before, after) > KEPT_BYTES:
        fault = fault or f"each time, over {KEPT_BYTES / 1e6:.0f} MB of memory did not come back"
    elif not trial.takes_something and bystanders.count_failed():
        fault = fault or f"{bystanders.count_failed()} bystanders failed"
    elif not trial.takes_something and bystanders.longest > usual + LONGER_S:
        fault = fault or f"a bystander waited {bystanders.longest:.1f} s"
    memory = held, max(bystanders.peak, held), after
    asked, failed = len(bystanders.waits), bystanders.count_failed()
    return Row(
        trial.name, result, fault, asked, failed, later, bystanders.longest, memory, restored
    )


def _seldom(show: Progress) -> Progress:
    shown = 0.0

    def progress(text: str) -> None:
        nonlocal shown
        if time.monotonic() > shown + 0.2:
            shown = time.monotonic()
            show(text)

    return progress


def _until_back(subject: Subject, before: int) -> int:
    held, fell = subject.memory(), (began := time.monotonic())
    while held > before + KEPT_BYTES:
        now = time.monotonic()
        if now > began + MEMORY_BACK_S or now > fell + STEADY_S:
            break
        time.sleep(0.5)
        if (left := subject.memory()) < held:
            fell = now
        held = left
    return held


def _repeat(subject: Subject, trial: Trial, before: Mapping[str, int], held: int) -> int:
    """The least bytes that the same keeps beyond what it kept the time before. What processes take
    once, and have ready for the next time, is no leak: a flood's they have after three or four."""
    least = held
    for repeat in range(REPEATS):
        name = f"{trial.name}, again for its memory ({repeat + 1} of {REPEATS})"
        with console.waiting(name) as waiting, suppress(Harmed, ConnectionError, TimeoutError):
            trial.run(subject, _seldom(waiting.show))
        subject.until_whole(before, RESTORED_S)
        after = _until_back(subject, held)
        least, held = min(least, after - held), after
        if least <= KEPT_BYTES:
            break
    return least


def _line(row: Row) -> str:
    restored = "not restored" if row.restored is None else f"whole after {row.restored:.1f} s"
    return f"{row.name}: {row.fault or row.result}; {restored}"
