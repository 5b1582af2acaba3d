"""Builds a new version without touching the live one.

    make publish [MODEL=birds] [ARCH=] [WEIGHTS=] [TRUST=1] [PRECISION=] [DECODE=] …

Settings you omit keep the live version's values; the programs of the Python models are taken from
model_repository/*/1. Next: make rollout.
"""

import os

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.repository.shared import Shared
from scripts.rollout import rollout
from scripts.server import own_network, served, up
from scripts.server.wanted_settings import settings_of
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state

# By these, `make up` takes in another pipeline's network.
OTHERS = ("FROM", "ONNX")


def main() -> None:
    pipeline = pipelines.find_asked_pipeline()
    if source := next((os.environ[word] for word in OTHERS if os.environ.get(word)), None):
        call = own_network.describe_publish(pipeline, source)
        remedy = f"for a new version of {pipeline.name}: {call}"
        raise UserError("FROM= begins another pipeline", remedy)
    for word, what, where in (
        ("LABELS", "labels", "others into the file that the pipeline was given"),
        ("PICTURES", "way to prepare pictures", "another into its recipe"),
    ):
        if os.environ.get(word):
            raise UserError(
                f"a new version has its pipeline's {what}, and {word}= changes nothing",
                f"write {where}, and omit {word}=",
            )
    if weights := os.environ.get(Settings.weights.name):
        os.environ[Settings.weights.name] = own_network.import_version(pipeline, weights)
    with lock.one_at_a_time():
        known = state.load()
        shared = Shared(state.settings_in_use(), pipeline)
        shared.pull()
        serving = served.serving(pipeline)
        if known is None or serving is None:
            raise UserError(
                f"{pipeline.name} is not served, so there is nothing to publish alongside",
                f"start one: {served.brings_up(pipeline)}",
            )
        settings = settings_of(pipeline, known.settings, serving)
        stack = flavour.stack(known.flavour, settings)
        stack.prepare()
        version = up.build_version(stack, settings, pipeline, serving)
        if version == serving:
            what = f"nothing changed: {version.describe()} is live"
            console.note(what, version=version.number)
            own_network.tell_changed(pipeline)
            return
        shared.push_version(version)
        shared.record(history.PUBLISHED, version.number, "publish", version.what)
        shared.trim(settings.keep_versions, "publish")
    if rollout.has_reordered_labels(version.workspace, serving.workspace):
        console.note(
            f"its labels are those of version {serving.number} in another order: look whether the"
            " network was trained with that order"
        )
    done = f"published: {version.describe()}; next: make rollout{pipeline.option}"
    console.note(done, version=version.number)
