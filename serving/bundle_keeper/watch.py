"""Watches a running server and restores its models, until the server must be restarted.

Triton reports itself and its models as ready even if their processes have died. So what counts is
which processes exist, and whether test requests are answered.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import grpc

from bundle_keeper.asking import IN_TRANSIT, Front, Refusal, Triton
from bundle_keeper.children import Child
from bundle_keeper.hands import Hands, Pauses
from bundle_serving.process import gpu, sockets
from bundle_serving.process.keeper_notes import MODEL, Notes
from bundle_serving.process.processes import TICKS_A_SECOND, Process, children_of, family, look_at
from bundle_serving.process.start_server import is_ngc

FAMILY_S = 1  # between two looks for new processes
SETTLE_S = 0.25

ASK_EVERY_S, ASK_BESIDE_EVERY_S = 5, 30
OF_THE_SERVER = sockets.GRPC, sockets.METRICS
TWICE = 2
# If nothing was answered for this long and nothing computes, no answer will come.
QUESTION_S, COMPUTES = 8, 0.05  # of one core
# The limit, even if something computes:
PATIENCE_S = 90
# Triton ends the old processes of a reloaded model once they are idle; but if one of them was
# killed, it waits for that one forever, and the others stay. So they are ended here: when they have
# been idle for a while, or at the latest after this time.
OLD_IDLE_S, OLD_S = 2, 30


@dataclass
class Watch:
    first: str  # the main pipeline
    server: Child
    triton: Triton
    notes: Notes
    hands: Hands
    pauses: Pauses
    front: Front
    folder: Path  # with the server's sockets
    reopen: Callable[[str], None]  # restarts the door, which leads to them

    def __post_init__(self) -> None:
        self._shut = 0  # how often in a row nobody was let in
        self._gone = asyncio.Event()  # one of the server's processes has exited
        self._ask_now = asyncio.Event()
        self._ask_now.set()
        self._counts: Counter[str] = Counter()
        self._answered = {self.first: time.monotonic()}  # the time of each pipeline's last answer
        self._wrong: set[str] = set()  # the pipelines that did not answer in the last round
        self._reloaded: set[str] = set()  # and those whose models were reloaded for that
        self._ending: set[asyncio.Task[None]] = set()  # replaced processes

    async def watch_until_restart_needed(self) -> str:
        """Returns the reason."""
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._server_ended(),
                self._keep_models(),
                self._keep_pipelines(),
                self._notice_who_goes(),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return str(next(iter(done)).result())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _server_ended(self) -> str:
        await self.server.wait()
        by = f" ({signal.Signals(self.server.ended_by).name})" if self.server.ended_by else ""
        return f"the server had exited{by}"

    async def _notice_who_goes(self) -> NoReturn:
        watched: set[int] = set()

        async def note_end(pid: int) -> None:
            with suppress(ProcessLookupError):  # before it was looked at
                await Child(pid).wait()
            watched.discard(pid)
            self._gone.set()

        self._gone.set()  # perhaps: before this keeper looked
        async with asyncio.TaskGroup() as watching:
            while True:
                for pid in (self.server.pid, *children_of(self.server.pid)):
                    if pid not in watched and look_at(pid):
                        watched.add(pid)
                        watching.create_task(note_end(pid))
                await asyncio.sleep(FAMILY_S)

    # Models

    async def _keep_models(self) -> str:
        """Notices missing processes at once, even while a test request waits for its answer."""
        while True:
            await self._gone.wait()
            self._gone.clear()
            if reason := await self._restore_models():
                return reason

    async def _restore_models(self) -> str | None:
        """Reloads models that lack processes; returns a reason if that fails."""
        lacking = await self._lacking()
        self.notes.lacks(sorted(lacking))
        if not lacking:
            return None
        async with self.hands.hold_for_keeper():
            await asyncio.sleep(SETTLE_S)
            for model in sorted(lacking & await self._lacking()):
                if reason := await self._reload(model, "it lacked a process"):
                    return reason
        self.notes.lacks(sorted(await self._lacking()))
        self._wrong.clear()  # possibly because of that
        self._ask_now.set()  # check again now
        return None

    async def _lacking(self) -> set[str]:
        """The ready models with fewer processes than they should have."""
        there = Counter(each.instance for each in self._models())
        lacking = set()
        try:
            states = await self.triton.states()
            if IN_TRANSIT & set(states.values()):  # its processes are starting or ending
                asyncio.get_running_loop().call_later(1, self._gone.set)
            for (model, version), state in states.items():
                if state != "READY":
                    continue
                config = await self.triton.config(model, version)
                if is_ngc() and config.backend != "python":
                    continue  # it computes in the server itself
                left = {each.name: there[each.name, version] for each in config.instance_group}
                if any(left[each.name] < each.count for each in config.instance_group):
                    lacking.add(model)
                    if not any(left.values()) and model in await self._members(self.first):
                        self.notes.say(False, f"{model} has no process left")
        except grpc.aio.AioRpcError:
            pass  # the test requests will show whether the server answers at all
        return lacking

    async def _members(self, pipeline: str) -> set[str]:
        config = await self.triton.config(pipeline)
        return {step.model_name for step in config.ensemble_scheduling.step}

    async def _reload(self, model: str, why: str) -> str | None:
        """Triton reloads a model if its config differs, and serves with the old processes until the
        new ones are ready."""
        await self.pauses.wait_before(model)
        try:
            config = await self.triton.config(model)
            groups = {group.name for group in config.instance_group}
            old = [
                each.pid for each in self._models() if each.instance and each.instance[0] in groups
            ]
            config.parameters["made_anew"].string_value = str(time.time_ns())
            await self.triton.load(model, config)
        except grpc.aio.AioRpcError as fault:
            return f"{model} could not be reloaded ({fault.details()})"
        self.notes.note_restored(MODEL, f"{model}: {why}; reloaded it")
        ending = asyncio.create_task(_end_when_idle(old))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return None

    def _models(self) -> list[Process]:
        return [each for each in family(self.server.pid) if each.instance]

    # Pipelines

    async def _keep_pipelines(self) -> str:
        while True:
            wrong = await self._ask_when_due()
            if reason := await self._restore_pipelines(wrong):
                return reason
            if self.first not in wrong and (reason := await self._keep_open()):
                return reason

    async def _keep_open(self) -> str | None:
        """A pipeline that answers is ready as soon as those outside are answered, too. Restores the
        way to it; returns a reason if for that the server must be restarted."""
        lost = [
            name
            for name in OF_THE_SERVER
            if not await asyncio.to_thread(sockets.is_listening, self.folder / name)
        ]
        gone = f"its socket {lost[0]} is gone" if lost else None
        if not (why := gone or await self.front.explain_closed(self.first)):
            self._shut = 0
            self.notes.say(True)
            return None
        self._shut += 1
        if self._shut < TWICE:
            return None  # it may just be restarted
        self.notes.say(False, why)
        with self.hands.on_if_free() as free:  # else another server takes over its ports
            if free and not gone and self._shut > TWICE:
                self.reopen(why)
        return gone

    async def _ask_when_due(self) -> dict[str, str]:
        """Which pipelines have which problem."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ask_now.wait(), ASK_EVERY_S)
        self._ask_now.clear()
        began, ticks, before = time.monotonic(), self._ticks(), self._counts
        try:
            refusals = {name: await self._ask(name) for name in await self._due()}
            self._counts = await self.triton.counts()
        except grpc.aio.AioRpcError:
            # It may wait while Triton reads S3, and pictures are answered all the same.
            refusals = {self.first: await self.triton.ask(self.first, QUESTION_S)}
        now = time.monotonic()
        computes = self._ticks() - ticks > COMPUTES * TICKS_A_SECOND * (now - began)
        wrong = {}
        for name, refusal in refusals.items():
            moves = computes or self._counts.get(name) != before.get(name)
            if refusal is None:
                self._answered[name] = now
            elif not (refusal.busy and moves and began < self._answered[name] + PATIENCE_S):
                wrong[name] = refusal.reason
        return wrong

    def _ticks(self) -> int:
        return sum(each.ticks for each in family(self.server.pid))

    async def _due(self) -> list[str]:
        """The main pipeline, and less often the others; one that has never answered may not be able
        to answer our kind of request."""
        others = await self.triton.ready() - {self.first}
        beside = [name for name in sorted(others) if await self._members(name)]
        self.notes.remember([*dict.fromkeys([*beside, *self.notes.coming])])
        for name in beside:
            if name not in self._answered and await self.triton.ask(name, QUESTION_S) is None:
                self._answered[name] = time.monotonic()
        long_ago = time.monotonic() - ASK_BESIDE_EVERY_S
        return [self.first, *(n for n in beside if self._answered.get(n, long_ago) < long_ago)]

    async def _ask(self, pipeline: str) -> Refusal | None:
        """Asks once per process of its largest model, because processes take turns."""
        configs = [await self.triton.config(model) for model in await self._members(pipeline)]
        instances = [
            sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
            for config in configs
        ]
        for _ in range(max(instances, default=1)):
            if refusal := await self.triton.ask(pipeline, QUESTION_S):
                return refusal
        return None

    async def _restore_pipelines(self, wrong: dict[str, str]) -> str | None:
        """Handles what failed twice; returns a reason if only a restart of the server is left."""
        if failed := next(filter(gpu.has_failed, wrong.values()), None):
            return f"the server cannot use its GPU any more ({failed})"
        twice = self._wrong & wrong.keys()
        self._wrong = set(wrong)
        self._reloaded &= self._wrong
        if self.first in twice:
            self.notes.say(False, wrong[self.first])
        if self.notes.lacking:  # that comes first
            return None
        for pipeline in sorted(twice):
            if pipeline in self._reloaded and pipeline == self.first:
                return f"the server does not answer requests ({wrong[pipeline]})"
            if pipeline == self.first and gpu.is_exhausted(wrong[pipeline]):
                # To reload a model takes more: the old one stays until the new one is there.
                return f"the server has no memory left ({wrong[pipeline]})"
            if pipeline in self._reloaded:
                del self._answered[pipeline]  # its owner must fix it
                continue
            with self.hands.on_if_free() as free:
                if not free:
                    return None
                self._reloaded.add(pipeline)
                if reason := await self._restore_pipeline(pipeline, wrong[pipeline]):
                    return reason
        if wrong:
            self._ask_now.set()
        return None

    async def _restore_pipeline(self, pipeline: str, why: str) -> str | None:
        try:
            if pipeline not in await self.triton.ready():
                await self.triton.load(pipeline)
                self.notes.note_restored(MODEL, f"{pipeline} was not loaded: loaded it")
                return None
            members = await self._members(pipeline)
        except grpc.aio.AioRpcError as fault:
            return f"the server does not answer ({fault.details()})"
        named = {model for model in members if f"'{model}_" in why}
        for model in sorted(named or members):
            if reason := await self._reload(model, why):
                return reason
        return None


async def _end_when_idle(processes: Collection[int]) -> None:
    computed, deadline = -1, time.monotonic() + OLD_S
    while time.monotonic() < deadline:
        if computed == (computed := sum(each.ticks for each in _look_at_models(processes))):
            break
        await asyncio.sleep(OLD_IDLE_S)
    for each in _look_at_models(processes):
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


def _look_at_models(numbers: Collection[int]) -> list[Process]:
    """One that has ended may have left its number to any process."""
    return [each for each in map(look_at, numbers) if each and each.instance]
