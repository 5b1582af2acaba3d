"""Shows what takes room in build/ and what of it can go, and removes that.

    make prune                shows it, and asks if there is a terminal
    make prune YES=1          removes without asking
    make prune KEEP_VERSIONS=3 DAYS=7

Goes: versions beyond the newest KEEP_VERSIONS, but neither the live one nor the one that a rollback
returns to; reports, downloads and other caches that are older than DAYS (30); what killed commands
left behind; images that a newer build or release has replaced; and what extensions know of.
"""

import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from scripts.base import console, disk, lock, parts, tables
from scripts.base.disk import Item
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history
from scripts.repository.shared import Shared
from scripts.server import engines
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state

BUILD = ROOT / "build"
REPORTS = ("bench", "eval", "proof", "rivals")
# Of killed commands; each is made anew by the next one that needs it.
LEFTOVERS = ("versions/.draft", "versions/*/.draft", "candidate", "tune", "run/*.log.1")
PASSING = "**/.*.tmp"


def main() -> None:
    asked, settings = arguments.load(), Settings.load()
    with lock.one_at_a_time():
        items = list(find_items(settings, asked.days))
    tables.show("rrll", ("size", "days", "what", "can go"), map(make_row, items))
    going = [item for item in items if item.why]
    if not going:
        console.note("nothing can go")
        return
    frees = disk.readable(sum(item.size for item in going))
    # Nobody waits for the answer, and what another command needs by then stays.
    if not (asked.yes or _ask_consent(f"remove {len(going)} of these, {frees}? [y/N] ")):
        console.note(f"nothing removed; make prune YES=1 frees {frees}")
        return
    with lock.one_at_a_time():
        still = {item.what: item for item in find_items(settings, asked.days) if item.why}
        going = [still[item.what] for item in going if item.what in still]
        for item in going:
            item.remove()
    frees = disk.readable(sum(item.size for item in going))
    console.note(f"removed {len(going)}, {frees}")


def _ask_consent(question: str) -> bool:
    return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")


def find_items(settings: Settings, days: int) -> Iterator[Item]:
    for pipeline in pipelines.every():
        yield from _versions(pipeline, settings)
    # Once, though each of the others may share files with versions.
    item = partial(_item, disk.identify_files(archive.HERE.glob("*")))
    reports = [path for name in REPORTS for path in sorted((BUILD / name).glob("[!.]*"))]
    # PyTorch's downloads, one by one, and what else is kept to be quick.
    cached = sorted((*engines.CACHE.glob("hub/*/*"), *engines.CACHE.glob("[!.]*")))
    for path in (*reports, *(each for each in cached if each != engines.CACHE / "hub")):
        yield item(path, f"older than {days} days" if disk.days_old(path) >= days else "")
    for pattern in (*LEFTOVERS, PASSING):
        for path in sorted(BUILD.glob(pattern)):
            yield item(path, "a killed command left it" if path.suffix != ".1" else "the last log")
    for path in sorted((BUILD / "run").glob("*.log")):
        yield item(path, "")
    yield from _images(settings)
    for each in parts.find("prune"):
        yield from each.find_items(settings, days)


def _versions(pipeline: Pipeline, settings: Settings) -> Iterator[Item]:
    shared = Shared(state.settings_in_use(), pipeline)
    shared.pull()
    events = history.read(pipeline)
    names = {history.find_previous(events): "previous", history.serving(events): "live"}
    numbers = archive.numbers(pipeline)
    surplus = shared.list_surplus(settings.keep_versions)
    folders = {number: archive.home(pipeline) / str(number) for number in numbers}
    files = {number: disk.identify_files([folder]) for number, folder in folders.items()}
    for number, folder in folders.items():
        others = (each for other, each in files.items() if other != number)
        name = f", {names[number]}" if number in names else ""
        yield Item(
            f"{pipeline.mark} version {number}{name}".strip(),
            disk.measure_occupied([folder], {*chain(*others)}),
            disk.days_old(folder / archive.RECORD),
            f"older than the newest {settings.keep_versions}" if number in surplus else "",
            partial(shared.remove, number, "prune"),
        )


def _item(archived: set[disk.File], path: Path, why: str) -> Item:
    def remove() -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    size = disk.measure_occupied([path], archived)
    return Item(str(path.relative_to(ROOT)), size, disk.days_old(path), why, remove)


def _images(settings: Settings) -> Iterator[Item]:
    if "cpu" not in flavour.possible():
        return
    from scripts.stacks.containers import DockerStack

    images = DockerStack(settings).images
    for names, size, built in images.list_replaced():
        yield Item(
            f"image {names[0][:19] if names[0].startswith('sha256:') else names[0]}",
            size,
            (datetime.now(UTC) - built).days,
            "a newer build replaced it",
            partial(images.remove, *names),
        )


def make_row(item: Item) -> tuple[str, str, str, str]:
    return disk.readable(item.size), str(item.days), item.what, item.why
