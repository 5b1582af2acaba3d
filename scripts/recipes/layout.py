"""How this machine serves any pipeline: engine, processes and threads."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.artefacts.workspace import Workspace
from scripts.settings.settings import Settings

# More take more memory than they are worth: each may have a large picture in hand.
MOST_INSTANCES = 16
# With one alone, Triton's queue would have no priorities (configs.drop_queue).
LEAST_INSTANCES = 2


@dataclass(frozen=True)
class Engine:
    """How one kind of hardware runs a network."""

    ending: str  # suffix of the model's name, if each engine has its own folder
    config: str  # which of configs/ the server uses
    file: str
    export: str  # the precision of the graph


CPU = Engine("onnx", "cpu", "model.onnx", "fp32")
GPU = Engine("trt", "gpu", "model.plan", "fp16")  # a plan has the precision of its graph


@dataclass(frozen=True)
class Decoding:
    """How pictures are decoded, independent of the network."""

    step: str = "python"
    decode: str = "reduced"
    max_megapixels: float = 50


@dataclass(frozen=True)
class Share:
    """How many processes run a model, and the threads of each."""

    instances: int
    threads: int

    @classmethod
    def of_cores(
        cls, cores: int, instances: int | None = None, threads: int | None = None
    ) -> Share:
        """One process per core: processes scale better than threads (docs/measuring/scale.md). Each
        has two threads, since an idle process leaves its core to the others; more where the
        processes are fewer."""
        instances = instances or max(LEAST_INSTANCES, min(cores, MOST_INSTANCES))
        return cls(instances, threads or min(cores, max(2, cores // instances)))

    @classmethod
    def preprocessing(cls, settings: Settings) -> Share:
        return cls.of_cores(
            settings.cores, settings.preprocess_instances, settings.preprocess_threads
        )

    @classmethod
    def network(cls, settings: Settings) -> Share:
        return cls.of_cores(settings.cores, settings.network_instances, settings.network_threads)


@dataclass(frozen=True)
class Layout:
    engine: Engine
    decoding: Decoding
    preprocessing: Share
    network: Share  # per GPU, if there are any; 0 instances: as many as the recipe says
    scores_stay: bool = False  # scores stay on the GPU for the postprocessing
    one_step: bool = False  # of an image pipeline: the network's model does all


def in_one_step(steps: str, engine: Engine) -> bool:
    """Whether STEPS has an image pipeline's pictures go through one model: on a GPU, the network is
    a step of its own."""
    return steps == "1" or (steps == "auto" and engine is CPU)


def precision_of(made: Workspace, engine: Engine) -> str:
    """The precision that a network computes in."""
    if not made.onnx.is_dir():
        return "fp32"
    if engine is not GPU:
        return str(made.decision["precision"])
    if made.forest:
        return "fp32"
    # TensorRT's default for float32.
    return "tf32" if made.manifest.identity["precision"] == "fp32" else "fp16"
