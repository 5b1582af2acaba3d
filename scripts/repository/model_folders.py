"""What the steps made + the folders of model_repository -> what Triton serves on this machine.

    python -m scripts.repository.model_folders --made build/versions/1 --repository build/live

Copies the models' configs, and adds what they leave open: the members' version folders, the labels,
and the members' configs/ with this machine's instance counts. Nothing is served from
model_repository itself: what is edited there comes to serve with the next version, and not before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bundle_serving.pictures import Transform
from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.pbtxt import LABELS
from scripts.recipes.pipelines import CPU, GPU, Engine, Pipeline
from scripts.steps.workspace import Workspace

COMMITTED = ROOT / "model_repository"

# Past this many processes of one model, memory grows faster than throughput.
MOST_INSTANCES = 4

# The name of the parameter by which Triton brings a Python model's inputs to the host, or not.
STAY = "FORCE_CPU_ONLY_INPUT_TENSORS"

UNTRAINED = " (untrained weights)"

# The files of each member's version folder: a file to be taken, or a text.
Contents = Mapping[str, Mapping[str, Path | str]]


@dataclass(frozen=True)
class Decoding:
    """How pictures are decoded, whatever the network."""

    step: str = "python"
    decode: str = "reduced"
    max_megapixels: float = 50


@dataclass(frozen=True)
class Share:
    """How many processes a model runs as, and the threads of each."""

    instances: int
    threads: int

    @classmethod
    def of(cls, cores: int, instances: int | None = None, threads: int | None = None) -> Share:
        """One process a core while they are few: they share the machine better than threads. Each
        with the threads of two, since one that waits for work lends its core."""
        instances = instances or min(cores, MOST_INSTANCES)
        return cls(instances, threads or min(cores, 2 * max(1, cores // instances)))


@dataclass(frozen=True)
class Layout:
    """How this machine serves a pipeline, whatever network it is."""

    pipeline: Pipeline
    engine: Engine
    decoding: Decoding
    preprocessing: Share
    network: Share  # of each GPU, where there are any
    scores_stay: bool = False  # on the GPU, for the postprocessing

    @property
    def first(self) -> str:
        return self.pipeline.preprocessing[self.decoding.step]

    @property
    def model(self) -> str:
        """The network's."""
        return self.pipeline.network(self.engine)

    @property
    def named(self) -> tuple[str, str]:
        """The models that name the classes."""
        return self.pipeline.ensemble, self.model


def precision_of(made: Workspace, engine: Engine) -> str:
    """That the network computes in."""
    if engine is CPU:
        return str(made.decision["precision"])
    # What TensorRT makes of float32 by itself.
    return "tf32" if made.manifest.identity["precision"] == "fp32" else "fp16"


def contents(made: Workspace, layout: Layout) -> Contents:
    """What the members' version folders hold, of a pipeline with this network in it."""
    transform = Transform(
        **made.manifest.transform,
        decode=layout.decoding.decode,
        max_megapixels=layout.decoding.max_megapixels,
    )
    # As texts: to a file that someone edits there must be no link.
    pipeline = layout.pipeline
    steps: dict[str, dict[str, Path | str]] = {
        model: {program: (COMMITTED / model / "1" / program).read_text()}
        for model, program in pipeline.programs.items()
        if model in (layout.first, pipeline.postprocessing)
    }
    steps[layout.first]["transform.json"] = transform.dump()
    return steps | {layout.model: _network(made, layout.engine)}


def _network(made: Workspace, engine: Engine) -> dict[str, Path | str]:
    if engine is GPU:
        return {
            engine.file: made.plan / engine.file,
            "manifest.json": made.onnx / "manifest.json",
            "plan.json": made.plan / "manifest.json",
        }
    network = made.int8 if made.eight_bits else made.onnx
    return {
        engine.file: network / engine.file,
        "manifest.json": network / "manifest.json",
        "engine.json": made.engine / "engine.json",
    }


def furnish(repository: Path) -> None:
    """With all that model_repository holds, but the versions of the pipelines' members. What other
    pipelines' exports laid out beside their programs stays."""
    models = {path.name for path in COMMITTED.iterdir() if path.is_dir()}
    furnish_with(models, repository)
    for gone in repository.iterdir():
        if gone.name not in models:
            shutil.rmtree(gone)


def furnish_with(models: Iterable[str], repository: Path) -> bool:
    """Whether anything changed."""
    members = pipelines.members()
    return any([_furnish_with(model, repository, model in members) for model in models])


def _furnish_with(model: str, repository: Path, has_versions: bool) -> bool:
    """A model's own versions are those that model_repository has; of one that has none there, as a
    network, they come from elsewhere."""
    changed = False
    own = [] if has_versions else version_numbers(COMMITTED, model)
    for number in version_numbers(repository, model):
        if own and number not in own:
            shutil.rmtree(repository / model / str(number))
            changed = True
    for number in own:  # one that holds nothing too, for whoever loads it to say so
        (repository / model / str(number)).mkdir(parents=True, exist_ok=True)
    for source in sorted((COMMITTED / model).rglob("*")):
        name = source.relative_to(COMMITTED)
        of_a_version = has_versions and name.parts[1].isdecimal()
        if of_a_version or "__pycache__" in name.parts or not source.is_file():
            continue
        target = repository / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            changed = True
    return changed


def lay_out(made: Workspace, layout: Layout, repository: Path) -> None:
    """All of it, each member as its first version."""
    furnish(repository)
    for model, content in contents(made, layout).items():
        for name, source in content.items():
            target = repository / model / "1" / name
            if isinstance(source, Path):
                files.place(source, target)
            else:
                files.write(target, source)
    configure(made, layout, repository)


def configure(made: Workspace, layout: Layout, repository: Path) -> None:
    """The labels, and the members' configs as this machine runs them."""
    engine, crop = layout.engine, made.manifest.transform["crop"]
    for model in layout.named:
        files.write(repository / model / LABELS, labels(made))

    pixels = [3, crop, crop]
    first = config(repository, layout.first)
    first.output[0].dims[:] = pixels
    if layout.decoding.step == "dali":
        threads = layout.preprocessing.instances * layout.preprocessing.threads
        first.parameters["num_threads"].string_value = str(threads)
    else:
        _share(first, layout.preprocessing)
    _save(repository, first, engine)

    network = config(repository, layout.model)
    network.input[0].dims[:] = pixels
    network.model_warmup[0].inputs["input"].dims[:] = pixels
    if engine is CPU:
        _share(network, layout.network)
    else:  # Triton takes it for each GPU
        network.instance_group[0].count = layout.network.instances
    _save(repository, network, engine)

    if engine is GPU:
        last = config(repository, layout.pipeline.postprocessing)
        last.parameters[STAY].string_value = "no" if layout.scores_stay else "yes"
        _save(repository, last, engine)
        ensemble = config(repository, layout.pipeline.ensemble)
        ensemble.ensemble_scheduling.step[0].model_name = layout.first
        _save(repository, ensemble, engine)
    files.let_all_read(repository)


def version_numbers(repository: Path, model: str) -> list[int]:
    """As Triton sees them: folders that are named by a number."""
    found = (path.name for path in (repository / model).glob("[1-9]*") if path.is_dir())
    return sorted(int(name) for name in found if name.isdecimal())


def labels(made: Workspace) -> str:
    """One label a line. Untrained weights say so in the label itself: then every client does."""
    mark = UNTRAINED if made.manifest.untrained else ""
    known = (made.onnx / LABELS).read_text().splitlines()
    return "".join(f"{label}{mark}\n" for label in known)


def config(repository: Path, model: str) -> ModelConfig:
    """As it is committed."""
    return _parsed(repository / model / "config.pbtxt")


def config_in_use(repository: Path, model: str, engine: Engine) -> ModelConfig:
    """As the server reads it."""
    named = repository / model / "configs" / f"{engine.config}.pbtxt"
    return _parsed(named) if named.exists() else config(repository, model)


def _parsed(path: Path) -> ModelConfig:
    try:
        return text_format.Parse(path.read_text(), ModelConfig())
    except (OSError, text_format.ParseError) as fault:
        raise UserError(
            f"{'/'.join(path.parts[-3:])} is no model config ({fault})",
            "mend it, or git checkout it",
        ) from None


def _share(member: ModelConfig, share: Share) -> None:
    member.instance_group[0].count = share.instances
    member.parameters["threads"].string_value = str(share.threads)


def as_shared(model: str, share: Share) -> str:
    """The config of a network beside the pipeline's, as this machine runs it."""
    member = config(COMMITTED, model)
    _share(member, share)
    return _text(member, "the command that loads it")


def _save(repository: Path, member: ModelConfig, engine: Engine) -> None:
    text = _text(member, "make up")
    files.write(repository / member.name / "configs" / f"{engine.config}.pbtxt", text)


def _text(member: ModelConfig, writer: str) -> str:
    head = f"# config.pbtxt of this model, as this machine runs it. Written by {writer}.\n"
    return head + text_format.MessageToString(member)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--made", type=Path, required=True, help="the folder of a version")
    parser.add_argument("--model", default="", help="a pipeline that was added")
    parser.add_argument("--engine", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--preprocess-instances", type=int)
    parser.add_argument("--preprocess-threads", type=int)
    parser.add_argument("--network-instances", type=int)
    parser.add_argument("--network-threads", type=int)
    parser.add_argument("--preprocess", choices=("python", "dali"), default="python")
    parser.add_argument("--decode", choices=("reduced", "full"), default="reduced")
    parser.add_argument("--max-megapixels", type=float, default=50)
    options = parser.parse_args(argv)
    layout = Layout(
        pipelines.named(options.model),
        {"cpu": CPU, "gpu": GPU}[options.engine],
        Decoding(options.preprocess, options.decode, options.max_megapixels),
        Share.of(options.cores, options.preprocess_instances, options.preprocess_threads),
        Share.of(options.cores, options.network_instances, options.network_threads),
    )
    lay_out(Workspace(options.made), layout, options.repository)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
