"""Says what is on pictures, by a small network where it is sure and by the large one for the rest;
brings the server up if it is not.

    make classify MODEL=cascade IMG=photo.jpg

The small network is exported, proved and laid out when it does not fit yet, and loaded into the
server that runs.
"""

from __future__ import annotations

from pathlib import Path

from bundle_serving.start_server import PIPELINE
from scripts import bootstrap
from scripts.base import console, files, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.cascade import shapes
from scripts.recipes.image import ON_CPU
from scripts.recipes.pbtxt import LABELS
from scripts.recipes.pipelines import CPU
from scripts.recipes.schema import Cascade, load_as
from scripts.repository import live, model_folders, placing
from scripts.repository.model_folders import UNTRAINED, Share
from scripts.server import engines, extra
from scripts.server.up import layout, served_transform
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.steps.manifest import Wanted, why_export
from scripts.steps.workspace import Workspace

RECIPE = ROOT / "recipes" / "cascade.yaml"
MADE = Workspace(ROOT / "build" / "cascade")


def prepare(server: State) -> str:
    """Exports, proves, lays out and loads what does not fit yet; the name of the model to be
    asked."""
    recipe, engine = load_as(RECIPE, Cascade), extra.engine(server)
    asked, first = recipe.models.ensemble, f"{recipe.models.first}_{engine}"
    with lock.one_at_a_time():
        _export(settings.load(), recipe, extra.precision(server))
        _refuse_other_pixels(server, recipe)
        texts = _for_the_processor(server, first) if engine == ON_CPU else {}
        furnished = extra.furnish(recipe)
        extra.plan(server, MADE.onnx, first, shapes(recipe), asked)
        changed = lay_out(MADE, recipe, live.REPOSITORY, engine, texts) or furnished
    extra.load(server, asked, changed)
    return asked


def _export(wished: Settings, recipe: Cascade, precision: str) -> None:
    weights = wished.weights_of("CASCADE")
    arch = recipe.source.removeprefix(pipelines.TORCHVISION)
    if reason := why_export(MADE.onnx, Wanted(arch, weights, precision)):
        console.note(f"cascade: {reason}")
        bootstrap.ensure("export")
        words = ("--arch", arch, "--weights", weights, "--precision", precision)
        extra.make("scripts.steps.export", *words, "--out", MADE.onnx)


def _refuse_other_pixels(server: State, recipe: Cascade) -> None:
    """Both networks are given the same."""
    if server.started_with["PREPROCESS"] == "dali":
        raise UserError(
            "the cascade's pictures are decoded on the processor, and PREPROCESS=dali is served",
            "serve with PREPROCESS=python: make up PREPROCESS=python",
        )
    crops = {recipe.crop, served_transform().crop, MADE.manifest.transform["crop"]}
    if len(crops) > 1:
        raise UserError(
            f"the cascade's networks are fed differently ({' and '.join(map(str, crops))} pixels)",
            f"serve an ARCH that takes {recipe.crop}",
        )


def _for_the_processor(server: State, first: str) -> dict[str, str]:
    """How the small network runs, as the large one does: its precision proved, its processes and
    threads those of this machine."""
    wished = server.started_with
    # Eight bits would need photos of yours, and cost the small network most.
    precision = "fp32" if wished["PRECISION"] == "fp32" else "auto"
    engines.prove(flavour.stack(server.flavour, wished), wished.replaced(PRECISION=precision), MADE)
    processes = layout(wished, CPU, pipelines.first()).network.instances
    # Threads that share a core cost so small a network more than they bring.
    share = Share(processes, max(1, wished.cores // processes))
    return {
        f"{first}/1/engine.json": (MADE.engine / "engine.json").read_text(),
        f"{first}/configs/{CPU.config}.pbtxt": model_folders.as_shared(first, share),
    }


def lay_out(
    made: Workspace, recipe: Cascade, models: Path, engine: str, texts: dict[str, str]
) -> bool:
    """Whether there was anything to be changed."""
    network = models / f"{recipe.models.first}_{engine}" / "1"
    changed = placing.put(made.onnx, network, engine, {})
    named = (recipe.models.ensemble, network.parent.name)
    labels = dict.fromkeys((f"{model}/{LABELS}" for model in named), _labels(made, models))
    for name, wanted in (texts | labels).items():
        path = models / name
        if not path.exists() or path.read_text() != wanted:
            files.write(path, wanted)
            changed = True
    files.let_all_read(models)
    return changed


def _labels(made: Workspace, models: Path) -> str:
    """Those of the large network; where the small one is untrained, they say so too."""
    labels = (models / PIPELINE / LABELS).read_text()
    if not made.manifest.untrained or UNTRAINED in labels:
        return labels
    return "".join(f"{label}{UNTRAINED}\n" for label in labels.splitlines())
