"""Several servers: the pipelines that each loads when it starts, and what it must then answer
before anyone asks it."""

from collections import Counter
from collections.abc import Container
from contextlib import suppress
from functools import partial

from bundle_serving.address import Address
from scripts.base import console
from scripts.recipes.layout import CPU, Layout
from scripts.repository.archive import Version
from scripts.rollout import proofs
from scripts.rollout.fleet import Fleet, FleetSwitch, with_pipelines
from scripts.rollout.switch import Proved, Running
from scripts.server import engines, loaded_beside
from scripts.server.layouts import lay_out, layout
from scripts.settings.settings import Settings
from scripts.stacks.many_servers import ManyServers
from scripts.stacks.state import State


class Servers(ManyServers):
    """As scripts/stacks/stack.py wants many to be."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.many = self

    def list_pipelines(
        self, settings: Settings, version: Version, laid_out: Container[str]
    ) -> dict[str, int]:
        """The main one, and what the last server had loaded and is laid out."""
        how = layout(settings, CPU)
        self._prove(settings, version, how)
        found = {version.pipeline.ensemble: version.number}
        for other in loaded_beside.read_remembered():
            if (ensemble := other.pipeline.ensemble) in laid_out:
                with loaded_beside.go_on_if_failing(f"{other.title} is left out"):
                    self._prove(settings, other, how)
                    found[ensemble] = other.number
        return found

    def load(self, server: State, version: Version) -> State:
        """Replaces the servers by some that have this pipeline too, unless they have it."""
        settings, ensemble = server.settings_at_start, version.pipeline.ensemble
        self._prove(settings, version, layout(settings.fill_from(version.settings), CPU))
        loads = server.pipelines | {ensemble: version.number}
        wanted = with_pipelines(self, server, loads)
        if wanted != server:
            self.start(wanted)
        loaded_beside.remember(ensemble)
        return wanted

    def unload(self, server: State, ensemble: str) -> None:
        if ensemble in server.pipelines:
            left = {name: number for name, number in server.pipelines.items() if name != ensemble}
            self.start(with_pipelines(self, server, left))
        loaded_beside.forget(ensemble)

    def find_addresses(self, server: State) -> dict[str, Address]:
        """Of each server that is reached, by its name."""
        found = {}
        for task in self.servers():
            if not task.runs:
                continue
            with suppress(OSError):
                address = self.find_address(server, task.address)
                found[f"{task.name}@{task.node}"] = address
        return found

    def make_switch(self, running: Running, proved: Proved) -> FleetSwitch:
        proofs.write(proved.new, proved.answers)
        fleet = Fleet(self, running.server, running.version, proved.new)
        return FleetSwitch(fleet, running, proved)

    def scale(self, server: State, replicas: int) -> None:
        self.start_or_stop(server, replicas)
        on = Counter(task.node for task in self.servers() if task.runs)
        spread = ", ".join(f"{count} on {node}" for node, count in sorted(on.items()))
        console.note(f"servers: {spread or 'none'}")

    def _prove(self, settings: Settings, version: Version, how: Layout) -> None:
        """On this machine, and notes what was answered."""
        pipeline = version.pipeline
        if not proofs.is_there(version):
            console.note(f"proving {version.title} here, before the servers prove themselves")
            limit, target = settings.start_timeout, partial(lay_out, version, how)
            made = version.workspace
            _, answers = engines.prove_served(self, limit, how, pipeline, made, target)
            proofs.write(version, answers)
