"""NVIDIA's own ONNX parser and builder, which need no GPU: those of TensorRT for RTX, from PyPI.

    network = Network(print)
    if network.parse(Path("model.onnx")):
        engine = network.build({"input": profile}, "8.6")

The parser, strong typing and the rules of optimization profiles are those of TensorRT itself; the
kernels that are chosen are RTX's. An engine cannot be loaded, or inspected, without a GPU.
"""

import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

Shape = tuple[int, ...]
Log = Callable[[str, str], None]  # a letter for how bad it is, and the message

LIBRARIES = ("libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1")

# A builder without a GPU must be told for which; RTX's knows these, of 7.5 and later.
NEXT_OF_KIN = {"9.0": "8.9", "10.0": "12.0"}


@dataclass(frozen=True)
class Profile:
    """The shapes of one input that a plan is built for."""

    min: Shape
    opt: Shape
    max: Shape


@dataclass(frozen=True)
class Tensor:
    name: str
    type: str  # as TensorRT calls it: HALF
    shape: Shape


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@cache
def _tensorrt() -> ModuleType:
    for name in LIBRARIES:
        (folder,) = importlib.import_module("tensorrt_rtx_libs").__path__
        ctypes.CDLL(str(Path(folder) / name), ctypes.RTLD_GLOBAL)
    return importlib.import_module("tensorrt_rtx_bindings")


class Network:
    def __init__(self, log: Log) -> None:
        trt = _tensorrt()
        logger = _logger()
        logger.say = log
        self._builder = trt.Builder(logger)
        strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self._network = self._builder.create_network(strong)
        self._parser = trt.OnnxParser(self._network, logger)

    def parse(self, path: Path) -> bool:
        """What is wrong with it has been logged."""
        return bool(self._parser.parse_from_file(str(path)))

    @property
    def inputs(self) -> list[Tensor]:
        return [_tensor(self._network.get_input(i)) for i in range(self._network.num_inputs)]

    @property
    def outputs(self) -> list[Tensor]:
        return [_tensor(self._network.get_output(i)) for i in range(self._network.num_outputs)]

    def layers(self) -> Iterator[Layer]:
        for number in range(self._network.num_layers):
            layer = self._network.get_layer(number)
            into = (layer.get_input(i) for i in range(layer.num_inputs))
            yield Layer(
                layer.name,
                layer.type.name,
                tuple(_tensor(each) for each in into if each is not None),
                tuple(_tensor(layer.get_output(i)) for i in range(layer.num_outputs)),
            )

    def build(self, profiles: Mapping[str, Profile], compute_capability: str) -> bytes | None:
        """The engine; None where it is refused, and why has been logged."""
        trt = _tensorrt()
        config = self._builder.create_builder_config()
        config.num_compute_capabilities = 1
        known = NEXT_OF_KIN.get(compute_capability, compute_capability)
        number = known.replace(".", "")
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{number}"), 0)
        if profiles:
            profile = self._builder.create_optimization_profile()
            for name, each in profiles.items():
                try:
                    profile.set_shape(name, each.min, each.opt, each.max)
                except RuntimeError:  # its reason has been logged
                    return None
            if config.add_optimization_profile(profile) < 0:
                return None
        engine = self._builder.build_serialized_network(self._network, config)
        return None if engine is None else bytes(engine)


def _tensor(tensor: Any) -> Tensor:
    return Tensor(tensor.name, tensor.dtype.name, tuple(tensor.shape))


@cache
def _logger() -> Any:
    """One for the whole process: TensorRT keeps the first that it is given."""
    trt = _tensorrt()
    letters = dict(zip(("INTERNAL_ERROR", "ERROR", "WARNING", "INFO"), "EEWI", strict=True))

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # it comes without types
        say: Log = print

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            # What it notices of the missing driver is none of the network's faults.
            if severity.name in letters and "catchCudaError" not in message.partition("\n")[0]:
                self.say(letters[severity.name], message)

    return Logger()
