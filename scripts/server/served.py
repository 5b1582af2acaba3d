"""What is being served, and whether it is well; fast, for commands that only ask."""

import json

from bundle_serving.health import reason_not_to_trust
from scripts.base import lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.layout import GPU
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history
from scripts.repository.archive import Version
from scripts.repository.history import Event
from scripts.stacks import state
from scripts.stacks.stack import Stack, why_not_ready
from scripts.stacks.state import State


def serving(pipeline: Pipeline) -> Version | None:
    """By the history; None if nothing is live, or if that was removed by hand."""
    number = history.serving(history.read(pipeline))
    return archive.load(pipeline, number) if number in archive.numbers(pipeline) else None


def find_served_version(pipeline: Pipeline | None = None) -> Version:
    """The live version; without a name, the main pipeline's."""
    pipeline = pipeline or pipelines.main()
    version = serving(pipeline)
    if version is None:
        raise UserError("nothing is being served here", f"start it: {brings_up(pipeline)}")
    return version


def brings_up(pipeline: Pipeline) -> str:
    """The command that starts it."""
    return state.name_start() if pipeline.is_main else f"make up{pipeline.option}"


def name_cut_off(pipeline: Pipeline, cut: Event) -> str:
    """A switch that began and did not end, or a try of a version."""
    return f"make {cut.how} of {f'{pipeline.mark} version {cut.version}'.strip()}"


def explain_cut_off(pipeline: Pipeline, cut: Event) -> str:
    """Either version may answer: what is tried beside the live one, too, after a restart."""
    what = name_cut_off(pipeline, cut)
    if holder := lock.find_holder(lock.OF_CHANGES):
        return f"{what} is under way ({holder})"
    return f"{what} was interrupted, and it may be what answers; to recover: {brings_up(pipeline)}"


def describe_server(server: State, version: Version) -> str:
    http, grpc = server.shown
    asked = f"{http.url}/v2/models/{version.pipeline.ensemble}, gRPC {grpc}"
    what = f"{version.pipeline.ensemble}, serving {version.what} ({version.title})"
    return f"{what}, flavour {server.flavour}, {asked}"


def describe_engine(version: Version) -> str | None:
    """What computes it, and in which precision; None of what has no network."""
    made = version.workspace
    if not made.onnx.is_dir():
        return None
    if version.engine is not GPU:
        return f"precision {made.decision['precision']}: {made.decision['why']}"
    if made.forest:
        return "trees, which Triton's FIL backend computes in fp32"
    built = json.loads((made.plan / "manifest.json").read_text())
    counted = built["precision"]
    return (
        f"plan {built['plan']['sha256'][:12]} of TensorRT {built['identity']['TensorRT']} for"
        f" {built['gpu']['name']}: {version.precision}, {counted['half layers']} of"
        f" {counted['layers']} layers in half precision"
    )


def unhealthy_reason(stack: Stack, server: State, pipeline: str) -> str | None:
    """None if it answers requests and its keeper is running, by its notes."""
    if reason := reason_not_to_trust(server.http, pipeline):
        return reason
    if not stack.alive():
        return "it answers, but its keeper is gone"
    kept = stack.keeper_state()
    if lacking := kept.get("lacking"):
        return f"{', '.join(lacking)} lacks a process, which the keeper restores"
    return why_not_ready(kept)
