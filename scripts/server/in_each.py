"""On a swarm: the pipelines that each server loads when it starts, and what it must then answer
before anyone asks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.recipes.layout import CPU, Layout
from scripts.repository import live, proofs
from scripts.repository.archive import Version
from scripts.server import engines, extra
from scripts.server.layouts import fingerprint, lay_out, layout
from scripts.settings.settings import Settings
from scripts.stacks import flavour
from scripts.stacks.flavour import Stack
from scripts.stacks.state import State

if TYPE_CHECKING:  # it takes long to load what talks to Docker
    from scripts.stacks.swarm import SwarmStack


def pipelines_of(stack: Stack, settings: Settings, version: Version) -> dict[str, int]:
    """Each ensemble and its version: the main one, and what the last server had loaded. A failure
    there does not affect the main pipeline."""
    how = layout(settings, CPU)
    _prove(stack, settings, version, how)
    found = {version.pipeline.ensemble: version.number}
    for other in extra.read_remembered():
        try:
            lay_out(other, how, live.REPOSITORY)
            _prove(stack, settings, other, how)
            found[other.pipeline.ensemble] = other.number
        except UserError as fault:
            console.note(f"{other.title} is left out: {fault.cause}; {fault.remedy}")
    return found


def load(stack: Stack, server: State, version: Version) -> State:
    """Replaces the servers by some that have this pipeline too, unless they have it."""
    settings, ensemble = server.settings_at_start, version.pipeline.ensemble
    _prove(stack, settings, version, layout(settings.fill_from(version.settings), CPU))
    wanted = with_pipelines(stack, server, server.pipelines | {ensemble: version.number})
    if wanted != server:
        stack.start(wanted)
    extra.remember(ensemble)
    return wanted


def unload(server: State, ensemble: str) -> None:
    if ensemble in server.pipelines:
        stack = flavour.stack(server.flavour, server.settings_at_start)
        left = {name: number for name, number in server.pipelines.items() if name != ensemble}
        stack.start(with_pipelines(stack, server, left))
    extra.forget(ensemble)


def addresses(server: State) -> dict[str, Address]:
    """Of each server of a swarm, by its name, at the balancer here."""
    if not server.pipelines:
        return {}
    stack = cast("SwarmStack", flavour.stack(server.flavour, server.settings_at_start))
    return {
        f"{task.name}@{task.node}": replace(server.http, server=task.address)
        for task in stack.servers()
    }


def with_pipelines(stack: Stack, server: State, loads: Mapping[str, int]) -> State:
    mark = fingerprint(stack, server.settings_at_start, loads)
    return replace(server, fingerprint=mark, pipelines=dict(loads))


def _prove(stack: Stack, settings: Settings, version: Version, how: Layout) -> None:
    """On this machine, and notes what was answered."""
    pipeline = version.pipeline
    if not proofs.path(pipeline.ensemble, version.number).exists():
        console.note(f"proving {version.title} here, before the servers prove themselves")
        limit, target = settings.start_timeout, partial(lay_out, version, how)
        made = version.workspace
        _, answers = engines.prove_served(stack, limit, how, pipeline, made, target)
        proofs.write(version, answers)
