"""What the search of settings does on a CPU, and what on a GPU: what is proved first, what is
varied, and what the figures are of."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from scripts.artefacts.workspace import Workspace
from scripts.base import console, files
from scripts.base.errors import AlreadyReported, UserError
from scripts.recipes import configs
from scripts.recipes.layout import CPU, GPU, Engine, Share, in_one_step, precision_of
from scripts.recipes.pipelines import Pipeline
from scripts.server import engines
from scripts.server.layouts import layout
from scripts.server.served import serving
from scripts.settings.settings import Settings
from scripts.stacks.stack import Stack
from scripts.steps.engine import processor
from scripts.tuning.search import Axes, Candidate, OnGpu, axes, axes_on_gpu

if TYPE_CHECKING:  # it takes long to load what talks to Docker
    from scripts.stacks.gpu import GpuStack


@dataclass(frozen=True)
class Cpu:
    stack: Stack
    settings: Settings
    main: Pipeline
    folder: Path  # for what is proved

    engine: ClassVar[Engine] = CPU

    def make(self, made: Workspace) -> None:
        """What takes long, or may fail, while a server may still run: to the cache."""
        engines.export(self.stack, self.settings, self.main, made)

    def prove(self) -> dict[str, Workspace]:
        """The precisions that may be served, each with what its check needs; the first is the
        current one. Others are tried only with PRECISION=auto."""
        chosen = self.settings.precision
        made = {chosen: self._begin(chosen)}
        engines.export(self.stack, self.settings, self.main, made[chosen])
        engines.prove(self.stack, self.settings, self.main, made[chosen])
        others = ("int8", "fp32") if chosen == "auto" else ()
        for other in others:
            asked = self.settings.replace_with(PRECISION=other)
            has_it = self.main.recipe.computes_in(asked) == other
            if other == made[chosen].decision["precision"] or not has_it:
                continue
            try:
                tried = Workspace(self.folder / other)
                files.link_tree(made[chosen].folder, tried.folder)
                engines.prove(self.stack, asked, self.main, tried)
                made[other] = tried
            except AlreadyReported:
                console.note(f"{other} is skipped")
            except UserError as fault:
                console.note(f"{other} is skipped: {fault.cause}; {fault.remedy}")
        return made

    def start(self, made: dict[str, Workspace]) -> Candidate:
        """The current settings."""
        shares = Share.network(self.settings), Share.preprocessing(self.settings)
        return Candidate(next(iter(made)), *shares)

    def axes(self, made: dict[str, Workspace]) -> Axes:
        one_step = in_one_step(self.settings.steps, CPU) or not self._decodes
        return axes(self.settings.cores, list(made), one_step)

    def describe(self, made: Workspace) -> str:
        """On what it computes."""
        return f"{processor()}, {self.settings.cores} cores"

    @property
    def _decodes(self) -> bool:
        return "preprocessing" in self.main.recipe.model_names

    def _begin(self, name: str) -> Workspace:
        """With what the live version has of it."""
        made = Workspace(self.folder / name)
        if seed := serving(self.main):
            files.link_tree(seed.folder, made.folder)
        return made


class Gpu(Cpu):
    """One plan, which all candidates serve."""

    engine = GPU

    def make(self, made: Workspace) -> None:
        engines.make(self.stack, self.settings, layout(self.settings, GPU), self.main, made)

    def prove(self) -> dict[str, Workspace]:
        made = self._begin("plan")
        self.make(made)
        return {precision_of(made, GPU): made}

    def start(self, made: dict[str, Workspace]) -> Candidate:
        ((precision, plan),) = made.items()
        copies = Share(self._count_copies(plan, self.settings), 1)
        return OnGpu(precision, copies, Share.preprocessing(self.settings))

    def axes(self, made: dict[str, Workspace]) -> Axes:
        (plan,) = made.values()
        one, two = (self.settings.replace_with(NETWORK_INSTANCES=number) for number in "12")
        is_copied = self._count_copies(plan, one) != self._count_copies(plan, two)
        decodes = self._decodes and self.settings.preprocess == "python"
        if found := axes_on_gpu(self.settings.cores, is_copied, decodes):
            return found
        name = self.main.name
        raise UserError(f"{name} has no settings to be tuned on a GPU", "measure it: make bench")

    def _count_copies(self, made: Workspace, settings: Settings) -> int:
        """As they are configured: not all kinds ask the setting."""
        network = configs.read_model(str(self.main.recipe.network_model(GPU)))
        self.main.recipe.fit(network, made, layout(settings, GPU))
        return int(network.instance_group[0].count)

    def describe(self, made: Workspace) -> str:
        by = "FIL" if made.forest else "TensorRT"
        return f"{by} on {cast('GpuStack', self.stack).description}; {super().describe(made)}"


def hardware_of(stack: Stack, settings: Settings, main: Pipeline, folder: Path) -> Cpu:
    chosen = Gpu if stack.engine is GPU else Cpu
    return chosen(stack, settings, main, folder)
