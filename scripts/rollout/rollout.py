"""Switching to another version with checks: `make rollout` and `make rollback`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from bundle_serving.address import Address
from bundle_serving.health import reason_not_to_trust
from bundle_serving.infer import Answer, Question
from scripts.artefacts import samples
from scripts.artefacts.samples import MOST_PICTURES
from scripts.artefacts.workspace import Workspace
from scripts.base import console, interrupts, lock
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.asking import ask_tensors
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, evaluations, history
from scripts.repository.archive import Version
from scripts.rollout import preflight, verdict
from scripts.rollout.counts import Clients
from scripts.rollout.labelled import NOT_PROVED, Contest, ContestOfClasses, ContestOfFigures
from scripts.rollout.preflight import STAYS, describe_anyway
from scripts.rollout.stream import Stream
from scripts.rollout.switch import Proved, Running, Switch
from scripts.rollout.verdict import ENOUGH, FEW, Agreement, Figures
from scripts.server import engines, layouts, served
from scripts.server.evaluating import One
from scripts.server.recover import find_recovered
from scripts.server.wanted_settings import settings_of_server
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.steps import gate

# A canary is watched this many times longer, because few requests go there.
CANARY_TIMES = 10
# An objection is checked again this many times, because the machine may be busy.
MOST_LOOKS = 4
# Few requests are no objection on a slow machine, but the waiting ends after so many times the
# watch, and not before so many seconds.
MOST_WATCHES, PATIENCE_S = 20, 60
# So many times the watch goes on for rare faults.
MORE_WATCHES = 3


class Switching(Protocol):
    """A switch that can be judged at each point, and reversed."""

    def carry_out(self, stream: Stream, canary: float | None, least: float) -> str:
        """Returns how it went; `least` is the percentage of answers that must agree."""

    def back(self, failing: bool = False) -> None:
        """`failing`: the new version's answers are errors."""


def find_running_server(pipeline: Pipeline) -> Running:
    """The running server; recovered first if a switch was interrupted."""
    server, shared, _ = find_recovered(pipeline)
    version = served.find_served_version(pipeline)
    settings = settings_of_server(pipeline).fill_from(server.settings)
    found = Running(server, flavour.stack_of(server), settings, version, shared)
    if reason := reason_not_to_trust(server.http, pipeline.ensemble):
        raise UserError(
            f"the server does not answer ({reason})", f"start it: {served.brings_up(pipeline)}"
        )
    return found


def choose_version(running: Running, wanted: int | None) -> int:
    """The one that is named; else the last that was published and not served yet, or the newest."""
    if wanted:
        return wanted
    numbers = archive.numbers(running.version.pipeline)
    published = history.waiting(history.read(running.version.pipeline))
    return published if published in numbers else max(numbers)


def prove(running: Running, target: int, how: str, judge_labels: bool) -> Proved:
    old = running.version
    new = archive.load(old.pipeline, target)
    served_with = running.server.settings_at_start.fill_from(new.settings)
    layout = layouts.layout(served_with, running.stack.engine)
    preflight.require_sound(old, new, layout.engine)
    preflight.require_writable(old)
    if judge_labels:
        preflight.require_trained(old, new)
    contest = _prepare_contest(running, new) if judge_labels else None
    console.note(f"{how}: {old.describe()} -> {new.describe()}")
    questions = _many_questions(running.settings, new)
    golden = len(new.pipeline.recipe.golden(new.workspace))
    memory, answers = engines.prove_served(
        running.stack,
        running.settings.start_timeout,
        layout,
        new.pipeline,
        new.workspace,
        partial(layouts.lay_out, new, layout),
        questions[golden:] if running.stack.many else (),
    )
    preflight.require_room(memory, running.stack.room(), new, running.server.flavour)
    return Proved(new, questions, answers, contest)


def switch_to(
    target: int, how: str, running: Running, canary: float | None = None, judge_labels: bool = True
) -> None:
    """Ends with the new version live, or with the old one and the reason. A rollback is not judged
    by its labels: they may be the reason for it."""
    proved = prove(running, target, how, judge_labels)
    old, new = running.version, proved.new
    recipe, many = new.pipeline.recipe, running.stack.many
    running.shared.begin(target, how)
    switch: Switching = (many.make_switch if many else InPlace)(running, proved)
    stream = Stream(
        running.server.http, recipe.ensemble, proved.questions, recipe.gist, serves=old.number
    )
    # The answers of untrained weights mean nothing; and who rolls back is in a hurry.
    judge_labels = judge_labels and not preflight.is_untrained(old)
    least = running.settings.min_agreement if judge_labels else 0
    with lock.hands_off():
        try:
            with stream:
                proof = switch.carry_out(stream, canary, least)
        except BaseException as fault:
            # A second Ctrl-C must not interrupt the way back.
            with interrupts.ignore_interrupts():
                _go_back(switch, running, new, how, fault)
            raise
    failed = sum(answer.gist is None for answer in stream.all())
    done = f"{failed} of {len(stream.all()):,} requests failed during the switch; {proof}"
    try:
        running.shared.record(history.SERVES, target, how, f"{new.what}; {done}")
    finally:  # it serves, whether or not another place takes the history
        if new.pipeline.is_main:
            _remember(running, new, how)
    console.note(f"{new.title} is live; {done}", version=target, failed=failed)


def _prepare_contest(running: Running, new: Version) -> Contest | None:
    path = evaluations.find_data(new.pipeline)
    if path is None:
        if new.workspace.onnx.is_dir():  # nothing else can be evaluated
            console.note(NOT_PROVED)
        return None
    versions = running.version, new
    apart = ContestOfFigures.prepare(running.server, path, *versions)
    return apart or ContestOfClasses.prepare(running.server, path, *versions)


class InPlace(Switch):
    """Of one server, which goes on."""

    def carry_out(self, stream: Stream, canary: float | None, least: float) -> str:
        settings = self.running.settings
        seconds, max_p99_ratio = settings.watch_seconds, settings.max_p99_ratio
        old, new = self.old.number, self.new.number
        alone = f"version {old} alone, for comparison"
        watch(stream, seconds, alone, lambda: len(stream.all()) >= FEW)
        of_old = stream.all()
        with stream.resting():
            loaded, proved = self._load_and_compare(stream.questions, least)
        if canary:
            self.share_with_clients(canary)

        stream.candidate, stream.share = (self.candidate, new), (canary or 50) / 100
        longer = seconds * CANARY_TIMES if canary else seconds
        beside = f"version {new} alongside, {100 * stream.share:g}% of the requests"
        here = [self.running.server.http]
        clients = Clients(lambda: here, self.pipeline, self.candidate, new)
        mark = stream.mark()
        judge(stream, beside, new, longer, max_p99_ratio, clients_objection=clients.find_objection)
        stream.share = 0
        # All that is known of the old version, but for the time of a load.
        of_old += [answer for answer in stream.answers_since(mark) if answer.version == old]
        usual = Figures.from_answers(of_old)

        began = time.monotonic()
        self.turn()
        stream.serves, stream.candidate = new, None
        switched = time.monotonic() - began
        after = judge(stream, f"version {new} live, on trial", new, seconds, max_p99_ratio, usual)
        ask_enough(stream, new, MORE_WATCHES * seconds)
        with stream.resting():
            self.settle()
        took = f"loaded in {loaded:.1f} s, switched in {switched:.2f} s"
        return f"{took}, p99 {usual.p99:.0f} -> {after.p99:.0f} ms{proved}"

    def _load_and_compare(self, questions: Sequence[Question], least: float) -> tuple[float, str]:
        """How long the load took, and what labelled data proved."""
        with console.waiting(f"loading version {self.new.number} alongside") as waiting:
            self.load_beside()
            loaded = waiting.seconds
        _ask_golden(self)
        if least:
            self._compare_answers(questions, least)
        if not self.contest:
            return loaded, ""
        with closing(self.contest.ask(self.old, self.pipeline)) as live:
            what = compare_labelled(self.contest, live, self.running, self.new, self.candidate)
        return loaded, what

    def _compare_answers(self, questions: Sequence[Question], least: float) -> None:
        """In random order, until it is certain."""
        found, mixed = Agreement(0, 0), random.Random(0).sample(questions, len(questions))
        live = ask_uncounted(self.running, self.pipeline, mixed)
        candidate = ask_uncounted(self.running, self.candidate, mixed)
        with (
            console.waiting(f"asking both versions at most {len(mixed)} requests"),
            closing(live),
            closing(candidate),
        ):
            for one, other in zip(live, candidate, strict=True):
                found += Agreement.from_gists(gists(self.old, [one]), gists(self.new, [other]))
                if found.is_certain(least):
                    break
        require_agreement(found, self.new, least)


def compare_labelled(
    contest: Contest,
    live: Iterable[One[Any]],
    running: Running,
    new: Version,
    model: str,
    only: Address | None = None,
) -> str:
    """For the history. `model`: what the new version is called; `only`: of many servers, the one
    that has it."""
    with closing(contest.ask(new, model, only)) as candidate:
        found, right = contest.judge(live, candidate, running.settings.max_drop)
    contest.note(new, right, running.shared)
    if found.objection:
        raise Refused(new.number, found.objection, f"{STAYS}; {describe_anyway(new)}")
    console.note(f"on labelled data: {found.what}")
    return f"; {found.what}"


def judge(
    stream: Stream,
    what: str,
    new: int,
    seconds: float,
    max_p99_ratio: float,
    before: Figures | None = None,
    clients_objection: Callable[[], str | None] = lambda: None,
) -> Figures:
    """Compares it with the old version's requests at the same time, or else with earlier ones. A
    failure counts at once, a client's too; everything else only if it persists."""
    mark, began, looks, is_short, so_far = stream.mark(), time.monotonic(), 0, False, ""

    def compare() -> tuple[Figures, Figures]:
        answers = stream.answers_since(mark)
        of_new = Figures.from_answers([answer for answer in answers if answer.version == new])
        of_old = before or Figures.from_answers(
            [answer for answer in answers if answer.version != new]
        )
        return of_old, of_new

    def is_decided() -> bool:
        of_old, of_new = compare()
        if of_new.failed or clients_objection():
            return True
        if is_short and not verdict.is_undecided(of_old, of_new, max_p99_ratio):
            return True
        return verdict.is_certain(of_old, of_new, max_p99_ratio)

    while True:
        watch(stream, seconds, f"{what}{so_far}", is_decided)
        if reason := clients_objection():
            raise Refused(new, reason, fails=True)
        late = time.monotonic() - began > max(MOST_WATCHES * seconds, PATIENCE_S)
        of_old, of_new = compare()
        is_short = verdict.is_undecided(of_old, of_new, max_p99_ratio)
        if is_short:
            reason = f"only {of_new.asked} requests reached it; {FEW} are compared"
            remedy = f"{STAYS}; if the server is so busy, give it longer: raise WATCH_SECONDS"
            so_far = f" ({of_new.asked} of {FEW} so far)"
            if late:
                break
            continue
        reason, remedy = verdict.objection(of_old, of_new, max_p99_ratio), STAYS
        looks += 1
        if reason is None or of_new.failed or of_old.failed or late or looks == MOST_LOOKS:
            break
    asked = sum(answer.version == new for answer in stream.all())
    console.note(f"live: {of_old}; candidate: {of_new}, {of_new.describe_certainty(asked)}")
    if reason:
        raise Refused(new, reason, remedy, fails=bool(of_new.failed))
    return of_new


def ask_enough(stream: Stream, new: int, most_s: float) -> None:
    """Until a rare fault of the new version, which is live, would have been met; on a slow machine
    fewer requests must do."""

    def is_enough() -> bool:
        answers = [answer for answer in stream.all() if answer.version == new]
        return len(answers) >= ENOUGH or any(answer.gist is None for answer in answers)

    what = f"version {new} live, until {ENOUGH} requests of ours have asked it"
    more = watch(stream, most_s, what, is_enough)
    if more.failed:
        raise Refused(new, f"{more.failed} of {more.asked:,} requests failed", fails=True)


class Refused(UserError):
    def __init__(self, version: int, reason: str, remedy: str = STAYS, fails: bool = False) -> None:
        super().__init__(f"version {version} is rejected: {reason}", remedy)
        self.reason = reason
        # Whether its answers are errors, and not just late ones.
        self.fails = fails


def watch(
    stream: Stream, seconds: float, what: str, is_decided: Callable[[], bool] = lambda: False
) -> Figures:
    mark = stream.mark()
    with console.waiting(f"{what}: {seconds:g} s of requests") as waiting:
        while waiting.seconds < seconds and not is_decided():
            waiting.show(str(Figures.from_answers(stream.answers_since(mark))))
            time.sleep(0.1)
    return Figures.from_answers(stream.answers_since(mark))


def _many_questions(settings: Settings, version: Version) -> list[Question]:
    """The golden requests and the user's photos, if any, filled up with drawn pictures."""
    recipe, made = version.pipeline.recipe, version.workspace
    questions = recipe.golden(made)
    if recipe.asked_about != "IMG":
        return questions
    own: list[bytes] = []
    folder = settings.samples
    if folder and ("SAMPLES" in settings.given or folder.is_dir()):
        own = samples.read(folder, MOST_PICTURES, "SAMPLES")
    known = {path.read_bytes() for path in made.pictures}
    more = [file for file in dict.fromkeys([*own, *samples.make_varied()]) if file not in known]
    return [*questions, *(recipe.question(file) for file in more)][:MOST_PICTURES]


def require_agreement(found: Agreement, candidate: Version, least_percent: float) -> None:
    """A network that hardly ever agrees with the live one is a different network, or a broken
    one."""
    console.note(str(found))
    if not found.enough(least_percent):
        reason = f"{found}, but MIN_AGREEMENT requires {least_percent:g}%"
        own = "compare on your own photos: SAMPLES=photos"
        raise Refused(candidate.number, reason, f"{STAYS}; {own}, or {describe_anyway(candidate)}")


def ask_uncounted(running: Running, model: str, questions: Sequence[Question]) -> Generator[Answer]:
    server = running.server.http
    return ask_tensors(server, model, questions, server.uncounted_headers, STAYS)


def gists(version: Version, answers: Sequence[Answer]) -> list[Hashable]:
    """As labels, if there are any: another network may order its classes differently."""
    labels = read_labels(version.workspace)
    gists = [version.pipeline.recipe.gist(each) for each in answers]
    return [
        labels[each] if isinstance(each, int) and each < len(labels) else each for each in gists
    ]


def read_labels(made: Workspace) -> list[str]:
    listed = made.onnx / configs.LABELS
    return listed.read_text().splitlines() if listed.exists() else []


def has_reordered_labels(made: Workspace, before: Workspace) -> bool:
    """As of a mistake: what it gets wrong may be none of the pictures that a rollout compares."""
    now, then = read_labels(made), read_labels(before)
    return now != then and sorted(now) == sorted(then)


def _ask_golden(switch: Switch) -> None:
    """Compares the new version, on the running server, with PyTorch's answers."""
    made, recipe = switch.new.workspace, switch.new.pipeline.recipe
    answers = [*ask_uncounted(switch.running, switch.candidate, recipe.golden(made))]
    seen = recipe.judge(made, answers)
    bound = gate.find_served_bound(made.onnx, switch.new.precision, seen.pictures)
    if not seen.within(bound):
        raise Refused(switch.new.number, f"its answers differ from PyTorch's ({seen}; {bound})")


def _go_back(
    switch: Switching, running: Running, new: Version, how: str, fault: BaseException
) -> None:
    old = running.version
    try:
        switch.back(failing=isinstance(fault, Refused) and fault.fails)
    except UserError as second:
        remedy = served.brings_up(old.pipeline)
        console.note(f"the server could not be recovered ({second.cause}): {remedy}")
        return
    running.shared.record(history.STAYED, new.number, how, history.explain(fault))
    console.note(f"{old.title} still serves")


def _remember(running: Running, new: Version, how: str) -> None:
    """For later commands: otherwise `make up` would find a version that it does not expect."""
    decided = new.own_settings
    known = state.load() or running.server
    settings, loads = known.settings | decided, known.pipelines
    mark = layouts.fingerprint(running.stack, known.settings_at_start, loads)
    replace(known, settings=settings, fingerprint=mark).save()
    written = dotenv_file.read()
    changed = {name: value for name, value in decided.items() if written.get(name, value) != value}
    if changed:
        dotenv_file.change(changed, f"make {how}: version {new.number}")
        console.note(f".env now says {', '.join(f'{k}={v}' for k, v in changed.items())}")
