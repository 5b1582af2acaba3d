"""Starts the server: exports, checks and lays out what has changed, then serves it.

    make up [FLAVOUR=gpu|cpu|local] [ARCH=resnet50] [WEIGHTS=default|random|FILE] [PRECISION=auto]
    make up FROM=birds.onnx LABELS=birds.txt [NAME=birds]    your own network, instead of ImageNet's
    make up MAIN=resnet50   of several pipelines, which the commands mean without MODEL
    make up MODEL=birds     another pipeline, on the same server
    make up … EVAL=val      labelled data of the pipeline: make eval, and each make rollout

FROM is an .onnx file, or what else make add-model takes, and ONNX=, SIZE=, OUTPUT=, PICTURES=,
SAMPLE= and TRUST=1 are as there; it need be given once. A running server that fits is left alone.
"""

import os

from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import evaluations
from scripts.server import own_main, up
from scripts.server.running import ensure_server, list_differing
from scripts.server.wanted_settings import settings_of_server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks import state


def main() -> None:
    evaluations.require_given()
    own_main.require_a_network(arguments.list_typed())
    if arguments.load().model:
        bring_up_named()
    else:
        own_main.bring_up(Settings.load())
    evaluations.remember_given(pipelines.find_asked_pipeline())


def bring_up_named() -> None:
    if word := next((word for word in own_main.OWN if os.environ.get(word)), None):
        raise UserError(f"MODEL= names a pipeline that is there, and {word}= a new one", "omit one")
    pipeline = pipelines.find_asked_pipeline()
    if pipeline.is_main:
        up.bring_up(Settings.load())
        return
    settings, known = settings_of_server(pipeline), state.load()
    if known and list_differing(known, settings):
        up.bring_up(settings)
    else:
        ensure_server(settings)
    up.bring_up_beside(pipeline)
