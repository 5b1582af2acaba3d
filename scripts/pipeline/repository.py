"""ONNX + engine decision -> model repository, ready to be served by this machine.

    python -m scripts.pipeline.repository --onnx build/onnx --made build/engine \
        --repository model_repository --cores 2

Writes what the committed folders leave open: the network's version folder, the recipe of the
pictures, the labels, and the members' configs/ with this machine's instance counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bundle_serving.pictures import Transform
from bundle_serving.start_server import PIPELINE
from scripts import files
from scripts.errors import UserError, guarded
from scripts.pipeline.manifest import Manifest

# The ensemble's first step, by what it is made with.
PREPROCESSING = {"python": "preprocessing", "dali": "preprocessing_dali"}

VERSION = "1"
INT8_VERSION = "2"  # of its own: the network that it was quantised from stays beside it

# Past this many processes of one model, memory grows faster than throughput.
MOST_INSTANCES = 4

UNTRAINED = " (untrained weights)"


@dataclass(frozen=True)
class Engine:
    """The network as one kind of hardware runs it: which model of the repository, and its file."""

    model: str
    config: str  # the name of the configs/ that the server is told to take
    file: str


CPU = Engine("resnet50_onnx", "cpu", "model.onnx")
GPU = Engine("resnet50_trt", "gpu", "model.plan")


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


def lay_out(
    onnx: Path,
    engine: Engine,
    made: Path,
    repository: Path,
    decoding: Decoding,
    preprocessing: Share,
    network: Share,
) -> None:
    """`made` is what the engine's step made: a decision on precision, a plan, an int8 network."""
    manifest = Manifest.load(onnx / "manifest.json")
    if manifest is None:
        raise UserError(f"{onnx} holds no exported network", "export one: make up")

    decision = json.loads((made / "engine.json").read_text()) if engine is CPU else {}
    int8 = decision.get("precision") == "int8"
    source = made if (made / engine.file).exists() else onnx
    version = repository / engine.model / (INT8_VERSION if int8 else VERSION)
    if not int8:  # the highest version is the one that is served
        shutil.rmtree(repository / engine.model / INT8_VERSION, ignore_errors=True)
    if _differs(source / "manifest.json", version / "manifest.json", version / engine.file):
        # The manifest goes last: where it stands, the file it describes stands too.
        (version / "manifest.json").unlink(missing_ok=True)
        files.place(source / engine.file, version / engine.file)
        files.place(source / "manifest.json", version / "manifest.json")

    first = PREPROCESSING[decoding.step]
    transform = Transform(
        **manifest.transform, decode=decoding.decode, max_megapixels=decoding.max_megapixels
    )
    files.write(repository / first / VERSION / "transform.json", transform.dump())
    files.write(repository / PIPELINE / "labels.txt", _labels(onnx, manifest.untrained))

    pixels = [3, transform.crop, transform.crop]
    config = _config(repository, first)
    config.output[0].dims[:] = pixels
    if decoding.step == "dali":
        threads = preprocessing.instances * preprocessing.threads
        config.parameters["num_threads"].string_value = str(threads)
    else:
        _share(config, preprocessing)
    _save(repository, config, engine)

    config = _config(repository, engine.model)
    config.input[0].dims[:] = pixels
    config.model_warmup[0].inputs["input"].dims[:] = pixels
    if engine is CPU:
        config.parameters["precision"].string_value = decision["precision"]
        _share(config, network)
    _save(repository, config, engine)

    if engine is GPU:
        config = _config(repository, PIPELINE)
        config.ensemble_scheduling.step[0].model_name = first
        _save(repository, config, engine)
    files.let_all_read(repository)


def recipe(repository: Path, step: str) -> Transform:
    """What is done to pictures before the network that is laid out."""
    return Transform.load(repository / PREPROCESSING[step] / VERSION / "transform.json")


def generated(repository: Path) -> list[Path]:
    """What lay_out writes; all else in the repository is the project's own."""
    written = [
        repository / PIPELINE / "labels.txt",
        repository / PIPELINE / "configs" / f"{GPU.config}.pbtxt",
    ]
    for engine, versions in ((CPU, (VERSION, INT8_VERSION)), (GPU, (VERSION,))):
        for version in versions:
            written.append(repository / engine.model / version / engine.file)
            written.append(repository / engine.model / version / "manifest.json")
        for model in (engine.model, *PREPROCESSING.values()):
            written.append(repository / model / "configs" / f"{engine.config}.pbtxt")
    for model in PREPROCESSING.values():
        written.append(repository / model / VERSION / "transform.json")
    return written


def _differs(source: Path, placed: Path, model: Path) -> bool:
    try:
        return source.read_bytes() != placed.read_bytes() or not model.exists()
    except OSError:
        return True


def _labels(onnx: Path, untrained: bool) -> str:
    """One label a line. Untrained weights say so in the label itself: then every client does."""
    labels = (onnx / "labels.txt").read_text().splitlines()
    return "".join(f"{label}{UNTRAINED if untrained else ''}\n" for label in labels)


def _config(repository: Path, model: str) -> ModelConfig:
    return text_format.Parse((repository / model / "config.pbtxt").read_text(), ModelConfig())


def _share(config: ModelConfig, share: Share) -> None:
    config.instance_group[0].count = share.instances
    config.parameters["threads"].string_value = str(share.threads)


def _save(repository: Path, config: ModelConfig, engine: Engine) -> None:
    head = "# config.pbtxt of this model, as this machine runs it. Written by make up.\n"
    text = head + text_format.MessageToString(config)
    files.write(repository / config.name / "configs" / f"{engine.config}.pbtxt", text)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--onnx", type=Path, required=True)
    parser.add_argument("--engine", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--made", type=Path, required=True, help="what engine or plan made")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--preprocess-instances", type=int)
    parser.add_argument("--preprocess-threads", type=int)
    parser.add_argument("--network-instances", type=int)
    parser.add_argument("--network-threads", type=int)
    parser.add_argument("--preprocess", choices=PREPROCESSING, default="python")
    parser.add_argument("--decode", choices=("reduced", "full"), default="reduced")
    parser.add_argument("--max-megapixels", type=float, default=50)
    options = parser.parse_args(argv)
    lay_out(
        options.onnx,
        {"cpu": CPU, "gpu": GPU}[options.engine],
        options.made,
        options.repository,
        Decoding(options.preprocess, options.decode, options.max_megapixels),
        Share.of(options.cores, options.preprocess_instances, options.preprocess_threads),
        Share.of(options.cores, options.network_instances, options.network_threads),
    )
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
