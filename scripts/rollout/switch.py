"""Switches a running server from one version to another, reversible at every point.

    pin      pins the ensemble's steps to the old version of each member
    beside   adds the new version's folders and loads them beside the old ones
    turn     pins the ensemble's steps to the new version, between two requests
    settle   unloads and removes the old version, and unpins the steps

The candidate is a separate ensemble, pinned to the new version, so that it can be tried before any
client is sent there.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from bundle_serving.health import reason_not_to_trust
from bundle_serving.infer import Answer, Question
from bundle_serving.protocol.kserve import ModelConfig
from scripts.base.errors import UserError
from scripts.repository import live, model_folders
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.rollout.labelled import Contest
from scripts.rollout.preflight import STAYS
from scripts.server.recover import leave_only, serve_alone
from scripts.server.triton.control import Control, pin_steps, serving_both
from scripts.settings.settings import Settings
from scripts.stacks.stack import Stack
from scripts.stacks.state import State

WELL_S = 5.0


@dataclass(frozen=True)
class Running:
    """The running server and its live version; `settings` are this command's settings."""

    server: State
    stack: Stack
    settings: Settings
    version: Version
    shared: Shared


@dataclass(frozen=True)
class Proved:
    """A version that answers as it should, on a server of its own."""

    new: Version
    questions: Sequence[Question]
    answers: Sequence[Answer]
    contest: Contest | None  # on labelled data


class Switch:
    def __init__(self, running: Running, proved: Proved) -> None:
        self.running, self.new, self.contest = running, proved.new, proved.contest
        self.old, self.shared, self.engine = running.version, running.shared, running.stack.engine
        self.control = Control(running.server.admin, running.settings.start_timeout)
        # The ensembles' names.
        self.pipeline, self.candidate = self.new.pipeline.ensemble, self.new.pipeline.candidate
        self._turned, self._looked = False, time.monotonic()

    @cached_property
    def changes(self) -> list[str]:
        """Of the models in use."""
        different = [m for m, number in self.new.models.items() if self.old.models[m] != number]
        return self.control.in_use(self._config(self.pipeline), different)

    def load_beside(self, is_unseen: bool = False) -> None:
        """`is_unseen`: nobody waits for the new version's answers."""
        live.place(self.old, live.REPOSITORY)  # a make up that was killed may have removed it
        ensemble = self._config(self.pipeline)
        self.control.load(self.pipeline, pin_steps(ensemble, self.old.models))
        live.place(self.new, live.REPOSITORY)
        self.shared.push_live()
        for model in self.changes:
            new = self.new.models[model]
            numbers, unseen = sorted((self.old.models[model], new)), new if is_unseen else None
            self.control.load(model, serving_both(self._config(model), *numbers, unseen=unseen))
        self.share_with_clients(0)

    def share_with_clients(self, percent: float, copies: float = 0) -> None:
        """The door reads in the candidate's config how many requests it gets, and how many
        copies."""
        candidate = pin_steps(self._config(self.pipeline), self.new.models)
        candidate.name = self.candidate
        candidate.parameters["share"].string_value = f"{percent:g}"
        if copies:
            candidate.parameters["shadow"].string_value = f"{copies:g}"
        candidate.parameters["version"].string_value = str(self.new.number)
        # An ensemble needs a version folder, and a folder needs a file.
        files = {"1/none": b"none"}
        recipe, made = self.new.pipeline.recipe, self.new.workspace
        if labels := recipe.label_lines(made, live.REPOSITORY):
            files["labels.txt"] = labels.encode()
        self.control.load(self.candidate, candidate, files)

    def turn(self) -> None:
        self._turned = True
        self._fix(self.new)

    def settle(self) -> None:
        self._serve_alone(self.new)

    def back(self, failing: bool = False) -> None:
        """Returns to the old version alone, from any point: what settles may have removed it."""
        live.place(self.old, live.REPOSITORY)
        try:
            # One that took too long goes on, and would hang if its folder were removed.
            self.control.wait_for(self.new.models)
            if self._turned:
                with suppress(UserError):  # the old version may be gone; it comes back below
                    self._fix(self.old)
            self._serve_alone(self.old)
        except UserError:  # the server has ended: the next one is to have the old version alone
            alike = leave_only(self.old, self.engine)
            with suppress(UserError):
                self.shared.push_live(*alike)
            raise

    def require_well(self) -> None:
        """While nothing else looks: the keeper leaves the server alone meanwhile."""
        if time.monotonic() > self._looked + WELL_S:
            if reason := reason_not_to_trust(self.running.server.http, self.pipeline):
                raise UserError(f"the live version does not answer ({reason})", STAYS)
            self._looked = time.monotonic()

    def _fix(self, version: Version) -> None:
        # The network's labels come later: Triton would reload the network for them, from its config
        # on disk, which serves the newest version alone.
        made = version.workspace
        if model_folders.write_ensemble_labels(version.pipeline, made, live.REPOSITORY):
            self.shared.push_live()
        ensemble = pin_steps(self._config(self.pipeline), version.models)
        ensemble.parameters["version"].string_value = str(version.number)  # the history lags behind
        self.control.load(self.pipeline, ensemble)

    def _serve_alone(self, version: Version) -> None:
        serve_alone(self.control, self.engine, version, self.shared, self.changes)

    def _config(self, model: str) -> ModelConfig:
        return model_folders.config_in_use(live.REPOSITORY, model, self.engine)
