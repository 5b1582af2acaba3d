"""How one machine serves pipelines, whatever they are: its engine, processes and threads."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.settings.settings import Settings

# Past this many processes of one model, memory grows faster than throughput.
MOST_INSTANCES = 4


@dataclass(frozen=True)
class Engine:
    """A network as one kind of hardware runs it."""

    ending: str  # of its model's name, where the two have folders of their own
    config: str  # the name of the configs/ that the server is told to take
    file: str
    export: str  # the precision of the graph


CPU = Engine("onnx", "cpu", "model.onnx", "fp32")
GPU = Engine("trt", "gpu", "model.plan", "fp16")  # a plan has the precision of its graph


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

    @classmethod
    def preprocessing(cls, wished: Settings) -> Share:
        return cls.of(wished.cores, wished.preprocess_instances, wished.preprocess_threads)

    @classmethod
    def network(cls, wished: Settings) -> Share:
        return cls.of(wished.cores, wished.network_instances, wished.network_threads)


@dataclass(frozen=True)
class Layout:
    engine: Engine
    decoding: Decoding
    preprocessing: Share
    network: Share  # of each GPU, where there are any; 0 instances: as many as the recipe says
    scores_stay: bool = False  # on the GPU, for the postprocessing
