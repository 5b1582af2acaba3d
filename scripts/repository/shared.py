"""A pipeline's versions and the live repository, also in another place if the settings name one:
for the server, which reads from there, and for other machines that publish and roll out.

Everything is built in local folders first; changes are then uploaded. What is removed goes from
both, if nobody goes back to it: KEEP_VERSIONS.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history, live, place
from scripts.repository.archive import Version
from scripts.settings.settings import Settings


class Shared:
    def __init__(self, settings: Settings, pipeline: Pipeline) -> None:
        self._remote = place.open_folder(settings)
        self._pipeline = pipeline

    def pull(self) -> None:
        """Fetches versions and history from other machines."""
        if self._remote is None:
            return
        there = self._remote.archive
        records = [
            name for name in there.list(self._name_there()) if name.endswith(f"/{archive.RECORD}")
        ]
        for record in records:
            number = record.removeprefix(self._name_there()).removesuffix(f"/{archive.RECORD}")
            if number.isdecimal() and not self._is_here(number, there.read(record)):
                there.fetch(self._name_there(number), archive.home(self._pipeline) / number)
        self.pull_history()

    def pull_history(self) -> None:
        if self._remote is None:
            return
        there = self._remote.archive
        content = there.read(self._name_there(history.NAME))
        if content and not history.has_more(self._pipeline, content):
            where, before = f"{self._name_there(history.NAME)} at {there.location}", None
            with suppress(UserError):  # a damaged one is replaced all the same
                before = history.serving(history.read(self._pipeline))
            history.replace(self._pipeline, content, where)
            now = history.serving(history.read(self._pipeline))
            if before and now and before != now:
                # Another machine's; or what was here is an older backup's.
                console.note(f"by {where}, version {now} is live, and no longer version {before}")

    def push_version(self, version: Version) -> None:
        """Uploads its record last: if that exists, the version is complete. What another machine
        has built meanwhile has the number then; this one is built again after the next `pull`."""
        if self._remote is None:
            return
        there, number = self._remote.archive, str(version.number)
        record = there.read(self._name_there(f"{number}/{archive.RECORD}"))
        if record and self._read_record(number, record)["hashes"] != version.hashes:
            raise UserError(
                f"{version.title} is another machine's by now",
                "run it again: this one becomes the next version",
            )
        there.mirror(version.folder, self._name_there(number), known=there.prefix)

    def push_live(self, *others: str) -> None:
        """Uploads its models, and these others."""
        self.push(self._pipeline.ensemble, *self._pipeline.recipe.members, *others)

    def push_all(self) -> None:
        """Leaves nothing else there."""
        self.push()

    def push(self, *models: str) -> None:
        """Uploads these, or all, to where the server reads them on its next load. What another
        machine has made live of the rest is perhaps not here."""
        if self._remote:
            known = self._remote.archive.prefix
            self._remote.mirror(live.REPOSITORY, known=known, only=models)

    def record(self, what: str, version: int, how: str, note: str = "") -> None:
        """After what other machines have recorded meanwhile."""
        try:
            self.pull_history()
        finally:  # where that place is away, here at least
            history.add(self._pipeline, what, version, how, note)
        self.push_history()

    def begin(self, version: int, how: str) -> None:
        """Ended at once if it cannot be recorded, since nothing follows."""
        try:
            self.record(history.BEGINS, version, how)
        except BaseException as fault:
            history.add(self._pipeline, history.STAYED, version, how, history.explain(fault))
            raise

    def push_history(self) -> None:
        if self._remote:
            content = history.path(self._pipeline).read_bytes()
            self._remote.archive.write(self._name_there(history.NAME), content)

    def list_surplus(self, keep: int) -> list[int]:
        """All but the newest, the live one, the one that a rollback returns to, and the last one
        that was published, which may be an earlier one again."""
        events = history.read(self._pipeline)
        published = [event.version for event in events if event.what == history.PUBLISHED]
        needed = {history.serving(events), history.find_previous(events), *published[-1:]}
        if cut := history.cut_off(events):
            needed.add(cut.version)
        known = archive.numbers(self._pipeline)
        return [number for number in known[:-keep] if number not in needed]

    def remove(self, number: int, how: str) -> None:
        """First from where it would come back."""
        if self._remote:
            self._remote.archive.remove(self._name_there(f"{number}/"))
        home = archive.home(self._pipeline)
        going = home / f".{number}.old.tmp"
        shutil.rmtree(going, ignore_errors=True)
        (home / str(number)).rename(going)  # nobody meets half a version
        self.record(history.REMOVED, number, how)
        shutil.rmtree(going)

    def trim(self, keep: int, how: str) -> None:
        """After a new version: leaves no more than are wanted."""
        if numbers := self.list_surplus(keep):
            for number in numbers:
                self.remove(number, how)
            shown = f"version{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            what = f"{self._pipeline.mark} {shown}".strip()
            console.note(f"removed {what} (KEEP_VERSIONS={keep})")

    def forget(self) -> None:
        """Removes all of its versions."""
        if self._remote:
            self._remote.archive.remove(self._name_there())

    @contextmanager
    def forget_on_failure(self) -> Iterator[None]:
        """Of a pipeline that is added: else the next one of its name would begin with its versions.
        What is there already is another machine's."""
        is_new = self._remote and not self._remote.archive.list(self._name_there())
        try:
            yield
        except BaseException:  # Ctrl-C too
            if is_new:
                with suppress(UserError):  # why it failed is what to tell
                    self.forget()
            raise

    def _name_there(self, name: str = "") -> str:
        """Its name there, the same as below archive.HERE."""
        folder = self._pipeline.folder
        return f"{folder}/{name}" if folder else name

    def _is_here(self, number: str, content: bytes | None) -> bool:
        here = files.read_json(archive.home(self._pipeline) / number / archive.RECORD)
        return here == self._read_record(number, content)

    def _read_record(self, number: str, content: bytes | None) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(content or b"")
            record["hashes"]
        except (ValueError, TypeError, KeyError):
            raise UserError(
                f"{self._name_there(number)}/{archive.RECORD} in the shared archive cannot be read",
                "remove that version there, or put it there again from a backup",
            ) from None
        return record
