"""Asks a served model about labelled data, and the original beside it."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bundle_door.watching import accuracy
from bundle_serving.address import Address
from bundle_serving.identity import identity
from scripts.artefacts.exporting import as_words
from scripts.base import console, files, lock
from scripts.base.errors import UserError
from scripts.evaluation.figures import TOP, Apart, Measured
from scripts.evaluation.labelled import Item, find_folder, match_classes
from scripts.evaluation.scores import Answers
from scripts.evaluation.share import Share
from scripts.recipes.asking import Asked
from scripts.recipes.layout import CPU, GPU
from scripts.repository import archive, evaluations, history, live
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import ask
from scripts.server.labelled_photos import hand_over
from scripts.server.served import serving
from scripts.server.wanted_settings import settings_of
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.steps.reference import OUT

TOGETHER = 4  # requests at a time

T = TypeVar("T")
Ask: TypeAlias = Callable[[Asked, Item], T]
# The answer to an item, its ms, and why it could not be read.
One: TypeAlias = tuple[T | None, float, str]


@dataclass(frozen=True)
class Data:
    """Labelled data as a version knows its classes."""

    path: Path
    items: Sequence[Item]
    left_out: int
    classes: Sequence[str]
    truth: NDArray[np.int64]

    def shuffle(self) -> Data:
        """Always the same way."""
        order = np.random.default_rng(0).permutation(len(self.items))
        return self.pick(order)

    def pick(self, places: NDArray[np.int64]) -> Data:
        items = [self.items[place] for place in places]
        return replace(self, items=items, truth=self.truth[places])


def read_data(version: Version, path: Path) -> Data:
    recipe, name = version.pipeline.recipe, version.pipeline.ensemble
    if not version.workspace.onnx.is_dir():
        raise UserError(f"{name} has no network that could be evaluated", "do without: EVAL=none")
    labelled = recipe.read_labelled(path)
    classes = recipe.name_classes(version.workspace)
    truth = match_classes(labelled, classes, name)
    return Data(path, labelled.items, labelled.left_out, classes, truth)


@dataclass(frozen=True)
class Run(Generic[T]):
    """Of each item its answer, or None if it could not be read."""

    answers: list[T | None]
    is_read: NDArray[np.bool_]
    ms: NDArray[np.float64]
    seconds: float
    refused: dict[str, str]  # item -> why


def ask_each(
    server: State, model: str, items: Iterable[Item], ask_one: Ask[T], only: Address | None = None
) -> Generator[One[T]]:
    """Several at once, in order. An item that cannot be read is noted; any other fault ends it.
    `only`: of many servers, this one."""
    from bundle_client import PictureRefused, SoundRefused, SourceError, TextRefused

    of_the_item = (PictureRefused, SoundRefused, SourceError, TextRefused)
    side = ask.server_of(server)

    def about(item: Item) -> One[T]:
        began, answer, why = time.perf_counter(), None, ""
        try:
            answer = ask_one(asked, item)
        except of_the_item as fault:
            why = fault.cause
        except UserError as fault:  # of what is asked by tensors
            raise UserError(f"{item.name}: {fault.cause}", fault.remedy) from None
        return answer, (time.perf_counter() - began) * 1e3, why

    with ask.uncounted_client(only or server.http, model) as client:
        asked = Asked(side, client, model)
        pool = ThreadPoolExecutor(TOGETHER)
        try:
            under_way = deque[Future[One[T]]]()
            for item in items:
                under_way.append(pool.submit(about, item))
                if len(under_way) == 2 * TOGETHER:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:  # Ctrl-C too: what is not asked yet is not asked any more
            pool.shutdown(wait=False, cancel_futures=True)


def run(
    server: State, version: Version, data: Path, items: Sequence[Item], ask_one: Ask[T]
) -> Run[T]:
    model = version.pipeline.ensemble
    began, ones = time.monotonic(), list[One[T]]()
    what = f"asking {version.title or model} about {len(items):,} items, {TOGETHER} at a time"
    with console.waiting(what) as waiting:
        for one in ask_each(server, model, items, ask_one):
            ones.append(one)
            waiting.show(f"{len(ones):,} of {len(items):,}")
    answers, ms, why = zip(*ones, strict=True)
    is_read = np.array([not each for each in why])
    refused = {item.name: each for item, each in zip(items, why, strict=True) if each}
    if not is_read.any():
        raise UserError(
            f"none of the {len(items):,} items of {data.name} can be read ({why[0]})",
            "name other labelled data: EVAL=",
        )
    return Run([*answers], is_read, np.array(ms), time.monotonic() - began, refused)


def ask_all(server: State, version: Version, data: Data) -> tuple[Run[Any], Answers]:
    """And what could be read of it, as classes."""
    recipe, count = version.pipeline.recipe, len(data.items)
    found = run(server, version, data.path, data.items, recipe.guess)
    likeliest, confidence = np.full((count, TOP), -1, np.int64), np.zeros(count)
    most = 1
    for place, labels in enumerate(found.answers):
        if labels:
            numbers = [label.index for label in labels[:TOP]]
            likeliest[place, : len(numbers)] = numbers
            confidence[place], most = labels[0].probability, max(most, len(numbers))
    read = found.is_read
    return found, Answers(data.classes, data.truth[read], likeliest[read, :most], confidence[read])


def note_confidence(version: Version, answers: Answers) -> None:
    """For the door, which estimates by it how often the version is right of what clients ask. What
    is not served any more may come back: of that, the notes that were written last are kept."""
    path, found = live.REPOSITORY / accuracy.NAME, describe_confidence(answers)
    known = json.loads(path.read_text()) if path.exists() else {}
    for model, number in version.models.items():
        folder = f"{model}/{number}"
        known.pop(folder, None)  # so that it becomes the last
        known[folder] = found | {"network": identity(live.REPOSITORY / folder)}
    gone = [folder for folder in known if not (live.REPOSITORY / folder).is_dir()]
    for folder in gone[: -accuracy.MOST_GONE]:
        del known[folder]
    files.write(path, json.dumps(known))


def describe_confidence(answers: Answers) -> dict[str, Any]:
    """Of all, and of those that were called each class."""

    def describe(some: NDArray[np.bool_]) -> dict[str, Any]:
        right, sure = int(answers.right[some].sum()), answers.confidence[some]
        threshold = accuracy.find_threshold(sure.round(accuracy.DIGITS).tolist(), right)
        return {"threshold": threshold, "right": right, "of": int(some.sum())}

    often = [
        number
        for number, count in zip(*np.unique(answers.first, return_counts=True), strict=True)
        if number >= 0 and count >= accuracy.LEAST_OF_A_CLASS
    ]
    classes = {str(number): describe(answers.first == number) for number in often}
    return describe(np.ones(len(answers), bool)) | {"classes": classes}


def by_client(data: Apart) -> Ask[Any]:
    return lambda asked, item: data.ask(asked.client, asked.model, item)


def measure_apart(server: State, version: Version, path: Path, data: Apart) -> Measured:
    """Of a kind that has figures of its own."""
    found = run(server, version, path, data.items, by_client(data))
    return data.measure(found.answers, found.refused)


def ask_original(
    server: State, version: Version, data: Data
) -> tuple[str, NDArray[np.int64]] | None:
    """What it is, and the class that it finds likeliest for each file; None of a kind that has no
    way to ask it."""
    settings = settings_of(version.pipeline, server.settings, version)
    stack = flavour.stack(server.flavour, settings)
    engine = GPU if server.flavour == "gpu" else CPU
    trial = version.pipeline.recipe.ask_original(version.workspace, settings, engine)
    if trial is None:
        return None
    folder, names = find_folder(data.items)
    # A step ends another one of its image, which a command may be at work with.
    with lock.one_at_a_time(), hand_over(names) as out:
        asked = {"onnx": version.workspace.onnx, "labelled": folder}
        asked |= {"items": out / "items.json", "out": out}
        stack.run_step(trial.step, *trial.words, *as_words(asked))
        with np.load(out / OUT) as found:
            return str(found["what"]), found["first"]


def require_still_served(version: Version) -> None:
    """Else some of what was answered is another version's, and its own folder may be gone."""
    now = serving(version.pipeline)
    if now is None or now.number != version.number:
        by = f"{now.title} is live now" if now else "nothing is live now"
        raise UserError(
            f"{version.title} was replaced while it was asked: {by}",
            f"measure that one: make eval{version.pipeline.option}",
        )


def note(version: Version, shared: Shared, data: Path, found: Share | Measured, how: str) -> None:
    """In its record, and in the history, unless that says so already: how often it was right, or
    the figure that counts first. Later commands take the same data."""
    evaluations.remember(version.pipeline, data)
    if isinstance(found, Share):
        kept: dict[str, Any] = {"right": found.count, "of": found.of}
        said = f"{found} right, {found.count:,} of {found.of:,} in {data.name}"
    else:
        name, first = next(iter(found.figures.items()))
        kept = {"figure": name, **asdict(first), "of": found.items}
        said = f"{name} {first}, on {found.items:,} of {data.name}"
    when = datetime.now(UTC).isoformat(timespec="seconds")
    archive.note_evaluation(version, {"when": when, "data": data.name, **kept})
    shared.push_version(version)
    events = history.read(version.pipeline)
    before = [each for each in events if each.what == history.EVALUATED]
    last = [each.note for each in before if each.version == version.number][-1:]
    if last != [said]:
        shared.record(history.EVALUATED, version.number, how, said)
