"""Serves a classifier of your own as another pipeline: a recipe, its model folders, a server.

    make add-model NAME=birds ONNX=birds.onnx LABELS=birds.txt
    make add-model NAME=birds ARCH=resnet18 WEIGHTS=birds.pth LABELS=birds.txt
    make add-model NAME=light ARCH=mobilenet_v3_small          torchvision's own weights and labels

What cannot be served is refused before anything is written. Then: make classify MODEL=birds IMG=…,
and up, publish, rollout, rollback, history and bench with MODEL=birds.
"""

from __future__ import annotations

import os
import shutil

from scripts.base import lock
from scripts.base.paths import ROOT
from scripts.recipes.kinds.image import Image
from scripts.recipes.layout import CPU
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, custom
from scripts.server import ask, engines, up
from scripts.server.running import running_server
from scripts.settings import arguments
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.steps import picture

SAMPLE = ROOT / "build" / "mug.jpg"


def main() -> int:
    name = arguments.load().name
    custom.require_a_name(name)
    wanted = Pipeline(name, custom.recipe(name, os.environ))
    custom.require_new(wanted)
    server = running_server(up.of_the_server(wanted))
    pipeline = tried(wanted, server)
    with custom.written(pipeline):
        up.bring_up_beside(pipeline, server)
    picture.main(["--out", str(SAMPLE)])
    return pipeline.recipe.ask(ask.of(server), [str(SAMPLE.relative_to(ROOT))], os.environ)


def tried(pipeline: Pipeline, server: State) -> Pipeline:
    """Exports and checks it, which later steps find done. Returns the pipeline with the picture
    sizes that the export found."""
    settings = up.settings_of(pipeline, server.settings, None)
    stack = flavour.stack(server.flavour, settings)
    with lock.one_at_a_time():
        stack.prepare()
        try:
            with archive.draft(pipeline, None) as draft:
                engines.export(stack, settings, pipeline, draft)
                if engines.of(stack) is CPU:
                    engines.prove(stack, settings, pipeline, draft)
                transform = draft.manifest.transform
        finally:
            shutil.rmtree(archive.home(pipeline))
    known = pipeline.recipe
    assert isinstance(known, Image)
    pictures = known.pictures.model_copy(update=transform)
    return Pipeline(pipeline.name, known.model_copy(update={"pictures": pictures}))
