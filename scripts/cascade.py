"""Says what is on pictures, by a small network where it is sure and by the large one for the rest;
brings the server up if it is not.

    make classify MODEL=cascade IMG=photo.jpg

The small network is exported and laid out when it does not fit yet, and loaded into the server that
runs.
"""

from __future__ import annotations

from pathlib import Path

from bundle_serving.start_server import PIPELINE
from scripts import bootstrap, files
from scripts.bootstrap import ROOT
from scripts.errors import UserError
from scripts.host import beside, console, lock, settings
from scripts.host.settings import Settings
from scripts.host.state import State
from scripts.mould.cascade import shapes
from scripts.mould.image import LABELS
from scripts.mould.recipe import Cascade, load_as
from scripts.pipeline import placing
from scripts.pipeline.manifest import Manifest, Wanted, why_export
from scripts.pipeline.repository import UNTRAINED
from scripts.up import served_transform
from scripts.versions import live

RECIPE = ROOT / "recipes" / "cascade.yaml"
MADE = ROOT / "build" / "cascade"


def prepare(server: State) -> str:
    """Exports, lays out and loads what does not fit yet; the name of the model to be asked."""
    recipe, engine = load_as(RECIPE, Cascade), beside.engine(server)
    asked, first = recipe.models.cascade, f"{recipe.models.first}_{engine}"
    with lock.one_at_a_time():
        _export(settings.load(), recipe, beside.precision(server))
        _refuse_other_pixels(server, recipe)
        furnished = beside.furnish(recipe)
        beside.plan(server, MADE, first, shapes(recipe), asked)
        changed = lay_out(MADE, recipe, live.REPOSITORY, engine) or furnished
    beside.load(server, asked, changed, members=(first,))
    return asked


def _export(wished: Settings, recipe: Cascade, precision: str) -> None:
    said = wished["CASCADE"]
    weights = said if said in ("default", "random") else str(Path(said).expanduser().resolve())
    arch = recipe.source.removeprefix("torchvision/")
    if reason := why_export(MADE, Wanted(arch, weights, precision)):
        console.note(f"cascade: {reason}")
        bootstrap.ensure("export")
        words = ("--arch", arch, "--weights", weights, "--precision", precision, "--out", MADE)
        beside.make("scripts.pipeline.export", *words)


def _refuse_other_pixels(server: State, recipe: Cascade) -> None:
    """Both networks are given the same."""
    if server.started_with["PREPROCESS"] == "dali":
        raise UserError(
            "the cascade's pictures are decoded on the processor, and PREPROCESS=dali is served",
            "serve with PREPROCESS=python: make up PREPROCESS=python",
        )
    served = served_transform()
    manifest = Manifest.load(MADE / placing.MANIFEST)
    crops = {recipe.crop, served.crop, manifest.transform["crop"] if manifest else recipe.crop}
    if len(crops) > 1:
        raise UserError(
            f"the cascade's networks are fed differently ({' and '.join(map(str, crops))} pixels)",
            f"serve an ARCH that takes {recipe.crop}",
        )


def lay_out(made: Path, recipe: Cascade, models: Path, engine: str) -> bool:
    """Whether there was anything to be changed."""
    network = models / f"{recipe.models.first}_{engine}" / "1"
    changed = placing.put(made, network, engine, {})
    labels, wanted = models / recipe.models.cascade / LABELS, _labels(made, models)
    if not labels.exists() or labels.read_text() != wanted:
        files.write(labels, wanted)
        changed = True
    files.let_all_read(models)
    return changed


def _labels(made: Path, models: Path) -> str:
    """Those of the large network; where the small one is untrained, they say so too."""
    labels = (models / PIPELINE / LABELS).read_text()
    manifest = Manifest.load(made / placing.MANIFEST)
    if not (manifest and manifest.untrained) or UNTRAINED in labels:
        return labels
    return "".join(f"{label}{UNTRAINED}\n" for label in labels.splitlines())
