"""Which pipelines are served, in which versions, and by which networks: asked of Triton, and read
from the manifests in the repository."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bundle_door import elsewhere
from bundle_door.answers import Refused
from bundle_door.elsewhere import Elsewhere
from bundle_door.triton import DATA_TYPES, Away, Triton
from bundle_serving.health import EXAMPLE, TAKES
from bundle_serving.process.main_pipeline import find_main

# An answer holds so long.
REMEMBERED_S, REFRESHED_S = 2.0, 5.0
# So often a server that starts is asked what it serves.
LEARNS_S = 0.25
CANDIDATE = "_candidate"
# In the repository: what happened to each pipeline's versions (scripts/repository/history.py).
HISTORY = "history.json"
MANIFEST = "manifest.json"
# What one of several servers is told: in their copies the history is an earlier one, on S3 unread.
TOLD = "LIVE_VERSIONS"
# Of a pipeline's classes, those that are named.
FIRST_CLASSES = 6
# A pipeline that nobody measures by name.
OTHER = "other"

PICTURES, TEXT, PIXELS, VECTORS = "pictures", "text", "pixels", "vectors"
# Of pictures, by an output that others lack.
BY_OUTPUT = {"BOXES": "boxes", "MASK": "masks"}
VALUES = "values"  # with an example of its own: a function, frames of a video


class Candidate(msgspec.Struct, frozen=True):
    """What of a pipeline's requests its candidate gets, in percent."""

    model: str
    version: str
    share: float
    # And copies of how many, unseen.
    shadow: float = 0.0
    # Where it runs on servers of its own, there under the name of its pipeline.
    servers: tuple[str, ...] = ()


class Served:
    def __init__(
        self, triton: Triton, repository: Path | None, elsewhere: Path | None = None
    ) -> None:
        """`elsewhere` is the folder with the note of candidates on other servers."""
        self._triton = triton
        self._elsewhere = elsewhere
        self._repository = repository
        self._asked, self._stamp = 0.0, 0
        self._asking: asyncio.Task[Any] | None = None
        self._lock = asyncio.Lock()
        self._known: list[dict[str, Any]] = []
        self._versions: dict[str, str] = {}
        # Of each pipeline the one that gets some of its requests.
        self.candidates: dict[str, Candidate] = {}
        self._most_rows: dict[str, int] = {}
        # All that is loaded, with its version; None as long as nobody has asked.
        self._ready: set[tuple[str, str]] | None = None
        self._naming: set[asyncio.Task[None]] = set()
        # With its stamp.
        self._history: tuple[int, dict[str, list[dict[str, Any]]]] = (0, {})

    async def pipelines(self) -> list[dict[str, Any]]:
        """The main one first; a candidate right behind its pipeline."""
        if self._is_due() or not self._known:
            await self._renew()
        if self._ready is None:  # somebody else has just asked in vain
            raise Away(sent=False)
        return self._known

    def _is_due(self) -> bool:
        return time.monotonic() > self._asked + REMEMBERED_S or self._stamp != self._find_stamp()

    def _find_stamp(self) -> int:
        """Of the history: another one as soon as another version is live."""
        with suppress(OSError):
            return (self._repository / HISTORY).stat().st_mtime_ns if self._repository else 0
        return 0

    async def _renew(self) -> None:
        """Or waits for what somebody else asks just now."""
        async with self._lock:
            if not self._is_due():
                return
            self._asked, self._stamp = time.monotonic(), self._find_stamp()
            known, others = await self._ask(), elsewhere.read(self._elsewhere)
            self._known = [each for it in known for each in (it, *describe_others(it, others))]
            self._versions = {each["model"]: each["version"] for each in self._known}
            self.candidates = {
                each["of"]: Candidate(
                    each["model"], each["version"], each["share"] or 0.0, each["shadow"] or 0.0
                )
                for each in known
                if each["candidate"] and (each["share"] or each["shadow"])
            } | {of: candidate_of(told) for of, told in others.items() if told.share}

    def find_elsewhere(self, model: str) -> tuple[str, Candidate] | None:
        """The pipeline of a candidate that is named and runs on other servers: as of now, for it
        may have come just before."""
        if not model.endswith(CANDIDATE):
            return None
        of = model.removesuffix(CANDIDATE)
        told = elsewhere.read(self._elsewhere).get(of)
        return (of, candidate_of(told)) if told else None

    async def learn(self) -> None:
        """What there is, so that the first requests, too, are logged by name."""
        while not self._ready:
            await self.look_anew()
            await asyncio.sleep(LEARNS_S)

    def refresh(self) -> None:
        """Soon, in the background: no request waits for what it is called in metrics."""
        asks = self._asking is not None and not self._asking.done()
        if time.monotonic() > self._asked + REFRESHED_S and not asks:
            self._asking = asyncio.create_task(self.look())

    async def look(self) -> None:
        """So that what is gone is not told; a server that starts tells nothing."""
        with suppress(Refused):
            await self._renew()

    async def look_anew(self) -> None:
        self._asked = 0.0
        await self.look()

    def is_there(self, step: tuple[str, str]) -> bool:
        """Whether that version of a model is still loaded."""
        return self._ready is None or step in self._ready

    def is_served(self, pipeline: str) -> bool:
        known = {each[name] for each in self._known for name in ("model", "of")}
        return not known or pipeline in known or pipeline == OTHER

    def name(self, model: str, answered: bool, then: Callable[[str, str], None]) -> None:
        """Tells `then` what a model is called in metrics. Of one that is not known, but has
        answered, or nothing is known yet, once Triton has been asked."""
        if model in self._versions or not (answered or self._ready is None):
            then(*self.series(model))
            return

        async def note_name() -> None:
            await self.look()
            then(*self.series(model))

        task = asyncio.create_task(note_name())
        self._naming.add(task)
        task.add_done_callback(self._naming.discard)

    def series(self, model: str) -> tuple[str, str]:
        """A model's name and version in metrics; strangers' names are all one."""
        if model in self._versions:
            return model, self._versions[model]
        return OTHER, ""

    def find_most_rows(self, model: str) -> int:
        """Of a batch; 0 where the first dimension of what it is asked counts none."""
        return self._most_rows.get(model, 0)

    def history(self) -> dict[str, list[dict[str, Any]]]:
        """The events of each pipeline, as far as the repository is a folder here; read again where
        they have changed: of some years it takes a while, in which nothing else is answered."""
        stamp, known = self._find_stamp(), self._history
        if stamp != known[0] and ((found := self._read(HISTORY)) is not None or not stamp):
            self._history = stamp, found or {}
        return self._history[1]

    async def _ask(self) -> list[dict[str, Any]]:
        # Of what is ready; for an index, Triton would list the repository, which may be on S3.
        ready: dict[str, list[str]] = {}
        for model in (await self._triton.ask("ModelStatistics")).model_stats:
            ready.setdefault(model.name, []).append(model.version)
        self._ready = {(name, version) for name, versions in ready.items() for version in versions}
        history = self.history()
        found, most_rows = [], dict[str, int]()
        for name in ready:
            try:
                config = (await self._triton.ask("ModelConfig", name=name)).config
            except Refused:  # unloaded meanwhile
                continue
            most_rows[name] = config.max_batch_size
            if kind := kind_of(config):
                found.append(self._describe_model(name, kind, config, ready, history))
        self._most_rows = most_rows
        main = find_main()
        return sorted(found, key=lambda each: (each["of"] != main, each["of"], each["model"]))

    def _describe_model(
        self,
        name: str,
        kind: str,
        config: Any,
        ready: dict[str, list[str]],
        history: dict[str, list[dict[str, Any]]],
    ) -> dict[str, Any]:
        of = name.removesuffix(CANDIDATE)
        is_candidate = name != of
        steps = {
            step.model_name: str(step.model_version)
            if step.model_version > 0
            else max(ready.get(step.model_name, [""]), key=lambda version: int(version or 0))
            for step in config.ensemble_scheduling.step
        }
        networks = [
            network for step, version in steps.items() if (network := self._network(step, version))
        ]
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        return {
            "model": name,
            "of": of,
            "main": of == find_main(),
            "kind": kind,
            "candidate": is_candidate,
            # Elsewhere a parameter of this name is the user's own.
            **{
                what: float(parameters[what]) if is_candidate and what in parameters else None
                for what in ("share", "shadow")
            },
            "version": parameters.get("version") or live_version(of, history.get(of, [])) or "1",
            "input": config.input[0].name,
            "output": config.output[0].name,
            "steps": steps,
            "networks": networks,
            "untrained": any(each["untrained"] for each in networks),
            "classes": self._list_classes(name, config),
        }

    def _list_classes(self, name: str, config: Any) -> dict[str, Any]:
        """How many there are, and the first of them."""
        file = config.output[0].label_filename
        try:
            text = (self._repository / name / file).read_text() if self._repository and file else ""
        except (OSError, ValueError):
            text = ""
        labels = text.splitlines()
        return {"count": len(labels), "first": labels[:FIRST_CLASSES]}

    def _network(self, model: str, version: str) -> dict[str, Any] | None:
        """What people want to know of it, from the manifest beside it."""
        manifest = self._read(f"{model}/{version}/{MANIFEST}")
        if not manifest:
            return None
        identity = manifest.get("identity", {})
        weights = identity.get("weights") or {}
        return {
            "name": str(identity.get("arch") or identity.get("source") or model),
            "weights": str(weights.get("source", "") if isinstance(weights, dict) else weights),
            "untrained": bool(manifest.get("untrained")),
        }

    def _read(self, name: str) -> Any:
        if self._repository is None:
            return None
        try:
            return json.loads((self._repository / name).read_text())
        except (OSError, ValueError):
            return None


def candidate_of(told: Elsewhere) -> Candidate:
    name = f"{told.model}{CANDIDATE}"
    return Candidate(name, told.version, told.share, servers=tuple(told.servers))


def describe_others(
    pipeline: dict[str, Any], others: Mapping[str, Elsewhere]
) -> list[dict[str, Any]]:
    """The candidate that a pipeline has on other servers, as far as it is known here."""
    told = others.get(pipeline["model"])
    if told is None:
        return []
    name, share = candidate_of(told).model, told.share
    of_it = {"model": name, "version": told.version, "share": share, "candidate": True}
    return [{**pipeline, **of_it, "steps": {}}]


def kind_of(config: Any) -> str | None:
    """What a pipeline is asked with; None of what is no pipeline."""
    if TAKES in config.parameters:
        return str(config.parameters[TAKES].string_value)
    if EXAMPLE in config.parameters:
        return VALUES
    if len(config.input) != 1:
        return None
    (tensor,) = config.input
    datatype = DATA_TYPES.Name(tensor.data_type).removeprefix("TYPE_")
    if tensor.name == "image" and datatype == "STRING":
        return VECTORS
    if not config.ensemble_scheduling.step:
        return None
    given = {each.name for each in config.output}
    if datatype == "UINT8" and tuple(tensor.dims) == (-1,):
        return next((kind for name, kind in BY_OUTPUT.items() if name in given), PICTURES)
    if datatype == "FP32" and tuple(tensor.dims) == (-1, -1, -1):
        return PIXELS
    return TEXT if datatype == "STRING" else None


def is_one_of_several() -> bool:
    return bool(os.environ.get(TOLD))


def live_version(pipeline: str, events: list[dict[str, Any]]) -> str | None:
    for told in os.environ.get(TOLD, "").split():
        name, _, version = told.partition("=")
        if name == pipeline:
            return version
    served = [event["version"] for event in events if event.get("what") == "serves"]
    return str(served[-1]) if served else None
