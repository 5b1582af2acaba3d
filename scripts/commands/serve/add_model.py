"""Serves a network of your own as another pipeline: a recipe, its model folders, a server.

    make add-model NAME=birds ONNX=birds.onnx LABELS=birds.txt
    make add-model NAME=birds ARCH=resnet18 WEIGHTS=birds.pth LABELS=birds.txt
    make add-model NAME=birds FROM=birds.xml LABELS=birds.txt     OpenVINO's, birds.bin beside it
    make add-model NAME=light ARCH=mobilenet_v3_small          torchvision's own weights and labels
    make add-model NAME=birds FROM=birds.keras LABELS=birds.txt   Keras's
    make add-model NAME=birds FROM=birds TRUST=1                  TensorFlow's, a program
    make add-model NAME=vit FROM=google/vit-base-patch16-224   a hub's, or another file or folder

    make add-model NAME=street FROM=folder-of-detr             a detector of Hugging Face's
    make add-model NAME=flowers FROM=flowers.json              XGBoost's, or another of tables

    make add-model NAME=birds ONNX=birds.onnx LABELS=birds.txt EVAL=val    labelled pictures: they
                                               tell how it wants pictures, where its file does not

Of what its file leaves open, SIZE=, OUTPUT= and PICTURES= tell; SAMPLE=photo.jpg=robin tries it.
What cannot be served is refused before anything is written. Then: make classify MODEL=birds IMG=…,
and up, publish, rollout, rollback, history and bench with MODEL=birds.
"""

import os

from scripts.artefacts import picture
from scripts.base import lock
from scripts.recipes.pipelines import Pipeline
from scripts.repository import evaluations, own_pipelines
from scripts.server import agreeing, ask, own_network, up
from scripts.server.running import ensure_server
from scripts.server.wanted_settings import settings_of, settings_of_server
from scripts.settings import arguments
from scripts.stacks import flavour
from scripts.stacks.state import State


def main() -> int:
    evaluations.require_given()
    name = arguments.load().name
    own_pipelines.require_a_name(name)
    samples = agreeing.samples(arguments.load().sample)
    with lock.one_at_a_time(lock.OF_ADDITIONS):
        own_pipelines.require_unused(name)
        with own_pipelines.keep_folder(name, os.environ):
            pipeline, server = add_pipeline(name, samples)
    evaluations.remember_given(pipeline)
    shown = [str(path) for path, _ in samples]
    if pipeline.recipe.asked_about == "IMG" and not samples:
        shown = [str(picture.write_for_users())]
    return pipeline.recipe.ask(ask.server_of(server), shown, os.environ)


def add_pipeline(name: str, samples: list[agreeing.Sample]) -> tuple[Pipeline, State]:
    wanted = Pipeline(name, own_network.recipe_of(name, os.environ))
    own_pipelines.require_new(wanted)
    server = ensure_server(settings_of_server(wanted))
    settings = settings_of(wanted, server.settings, None)
    pipeline = own_network.export_and_check(
        wanted, settings, flavour.stack(server.flavour, settings)
    )
    with up.add_beside(pipeline, pipeline.recipe.head.format(name=name)):
        agreeing.require(pipeline, server)
        agreeing.require_shown(pipeline, server, samples)
    return pipeline, server
