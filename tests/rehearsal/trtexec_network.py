"""What the rehearsal's trtexec knows of a network: an ONNX file, checked, and its layers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from trtexec_options import Profile, Refused, Shape

COMPUTE = ("Conv", "ConvTranspose", "Gemm", "MatMul")

# Names as TensorRT's engine inspector writes them ("Half", "Row major linear FP16 format"), in the
# examples of tools/experimental/trt-engine-explorer, NVIDIA/TensorRT at v10.16.
TYPES = {
    TensorProto.FLOAT: ("Float", "Row major linear FP32"),
    TensorProto.FLOAT16: ("Half", "Row major linear FP16 format"),
    TensorProto.BFLOAT16: ("BFloat16", "Row major linear BFloat16 format"),
    TensorProto.UINT8: ("UInt8", "Row major linear UInt8 format"),
    TensorProto.INT8: ("Int8", "Row major Int8 format"),
    TensorProto.INT32: ("Int32", "Row major linear Int32"),
    TensorProto.INT64: ("Int64", "Row major linear Int64 format"),
    TensorProto.BOOL: ("Bool", "Row major linear BOOL"),
}
# As in Triton's config.pbtxt.
TRITON_TYPES = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.FLOAT16: "TYPE_FP16",
    TensorProto.BFLOAT16: "TYPE_BF16",
    TensorProto.UINT8: "TYPE_UINT8",
    TensorProto.INT8: "TYPE_INT8",
    TensorProto.INT32: "TYPE_INT32",
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.BOOL: "TYPE_BOOL",
}
WEAK = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "fp32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Tensor:
    type: int
    shape: Shape


class Network:
    def __init__(self, path: Path) -> None:
        """Refused with what the ONNX parser says (onnx-tensorrt, ModelImporter::parseFromFile)."""
        if path.exists() and not path.is_file():
            raise Refused(f"Input is not a regular file: {path}")
        try:
            self.model = onnx.load(path)
            if not self.model.graph.node:
                raise ValueError("no nodes")
        except Exception as fault:
            opened = [] if path.exists() else [f"Could not open file {path}"]
            raise Refused(
                *opened, f"Failed to parse ONNX model from file: {path}!", f"rehearsal: {fault}"
            ) from None
        try:
            onnx.checker.check_model(self.model, full_check=True)
        except Exception as fault:
            raise Refused(
                f"rehearsal: not a network that ONNX's checker lets pass: {_one_line(fault)}"
            ) from None
        self._inferred = _inferred(self.model)
        self.tensors = dict(_tensors(self._inferred.graph))

    @property
    def inputs(self) -> dict[str, Tensor]:
        graph = self._inferred.graph
        weights = {each.name for each in graph.initializer}
        names = [each.name for each in graph.input if each.name not in weights]
        return {name: self.tensors[name] for name in names}

    @property
    def outputs(self) -> list[str]:
        return [each.name for each in self.model.graph.output]

    def described(self, names: Iterable[str]) -> dict[str, Any]:
        """For the plan's header, so that the server needs no ONNX library."""
        return {
            name: {
                "type": TRITON_TYPES.get(self.tensors[name].type, "TYPE_INVALID"),
                "shape": list(self.tensors[name].shape),
            }
            for name in names
        }

    def content(self) -> bytes:
        content: bytes = self.model.SerializeToString()
        return content

    def not_fp16(self) -> list[str]:
        """The compute that strong typing would run in another type than fp16."""
        faults = []
        for node in self._inferred.graph.node:
            types = [self.tensors[name].type for name in node.input[:2] if name in self.tensors]
            if node.op_type in COMPUTE and types != [TensorProto.FLOAT16] * 2:
                said = ", ".join(_said(Tensor(each, ()))[0] for each in types)
                faults.append(f"{node.op_type} {node.name or node.output[0]} ({said})")
        return faults

    def uncast_inputs(self) -> list[str]:
        """UINT8 inputs that feed anything but a Cast (NVIDIA/TensorRT#3985)."""
        return [
            name
            for name, tensor in self.inputs.items()
            if tensor.type == TensorProto.UINT8
            and any(
                name in node.input and node.op_type != "Cast" for node in self._inferred.graph.node
            )
        ]

    def layers(self, detailed: bool, weak: str | None, major: int) -> str:
        """The engine inspector's JSON. TensorRT fuses; the rehearsal has a layer for each node."""
        nodes = [node for node in self._inferred.graph.node if node.op_type != "Constant"]
        written = self._myelin_layer if major >= 11 else self._classic_layer
        layers: list[Any] = [_name(node) for node in nodes]
        if detailed:
            layers = [written(node, weak, index) for index, node in enumerate(nodes)]
        bindings = [*self.inputs, *self.outputs]
        return json.dumps({"Layers": layers, "Bindings": bindings}, indent=2) + "\n"

    def _classic_layer(self, node: Any, weak: str | None, _: int) -> dict[str, Any]:
        """As the examples of tools/experimental/trt-engine-explorer, NVIDIA/TensorRT v10.16."""
        weights, inputs = self._split(node)
        layer: dict[str, Any] = {
            "Name": _name(node),
            "LayerType": "CaskConvolution" if node.op_type == "Conv" else node.op_type,
            "Inputs": [self._region(name, weak) for name in inputs],
            "Outputs": [self._region(name, weak) for name in node.output if name],
        }
        if node.op_type in COMPUTE:
            layer["ParameterType"] = "Convolution" if node.op_type == "Conv" else node.op_type
            for field, name in zip(("Weights", "Bias"), weights, strict=False):
                tensor = self._typed(name, weak)
                layer[field] = {"Type": _said(tensor)[0], "Count": math.prod(tensor.shape)}
        return layer | {"TacticName": "rehearsal", "TacticValue": "0x0000000000000000"}

    def _myelin_layer(self, node: Any, weak: str | None, index: int) -> dict[str, Any]:
        """Keys of .agents/skills/trt-perf-analysis/scripts/trt_perf/layer_info.py at v11.1, types
        as in samples/sampleEditableTimingCache/README.md; both styles can come from either major,
        so a reader must know both."""
        weights, inputs = self._split(node)
        kinds = {"Conv": "conv", "Gemm": "gemm", "MatMul": "gemm"}
        return {
            "Name": f"{_name(node)}_myl0_{index}",
            "LayerType": kinds.get(node.op_type, "kgen"),
            "Inputs": [self._plain(name, weak) for name in inputs],
            "Constants": [self._plain(name, weak) for name in weights],
            "Outputs": [self._plain(name, weak) for name in node.output if name],
            "TacticName": "rehearsal",
            "StreamId": 0,
            "Metadata": f"[ONNX Layer: {node.name}]",
        }

    def _split(self, node: Any) -> tuple[list[str], list[str]]:
        """The node's weights, and what else goes into it."""
        known = {each.name for each in self._inferred.graph.initializer}
        names = [name for name in node.input if name]
        return [n for n in names if n in known], [n for n in names if n not in known]

    def _region(self, name: str, weak: str | None) -> dict[str, Any]:
        tensor = self._typed(name, weak)
        return {
            "Name": name,
            "Location": "Device",
            "Dimensions": list(tensor.shape),
            "Format/Datatype": _said(tensor)[1],
        }

    def _plain(self, name: str, weak: str | None) -> dict[str, Any]:
        tensor = self._typed(name, weak)
        said = {"Dimensions": list(tensor.shape), "Format/Datatype": _said(tensor)[0]}
        return {"Name": name} | said

    def _typed(self, name: str, weak: str | None) -> Tensor:
        """Under weak typing the builder, not the graph, has the last word on inner tensors."""
        tensor = self.tensors.get(name, Tensor(TensorProto.UNDEFINED, ()))
        free = name not in self.inputs and name not in self.outputs
        if weak is not None and free and tensor.type in WEAK.values():
            return Tensor(WEAK[weak], tensor.shape)
        return tensor


def check_profiles(network: Network, found: dict[str, Profile]) -> dict[str, Profile]:
    """As setupNetworkAndConfig in sampleEngines.cpp; what the builder sees, check_dimensions."""
    for name in found:
        if name not in network.inputs:
            raise Refused(
                f'Cannot find input tensor with name "{name}" in the network inputs! '
                "Please make sure the input tensor names are correct."
            )
    dynamic = {name: each for name, each in network.inputs.items() if -1 in each.shape}
    if found and not dynamic:
        raise Refused(
            "Static model does not take explicit shapes since the shape of inference tensors will "
            "be determined by the model itself"
        )
    for name in dynamic:
        if name in found:
            _check_order(found[name])
    return {name: found[name] for name in dynamic if name in found}


def _check_order(profile: Profile) -> None:
    """setDimensions returns false (NvInfer.h: kMIN, kOPT, kMAX must not contradict each other)."""
    if not profile.min or min(profile.min) < 0:
        raise Refused("Error in set dimensions to profile MIN")
    if not _at_most(profile.min, profile.opt):
        raise Refused("Error in set dimensions to profile OPT")
    if not _at_most(profile.opt, profile.max):
        raise Refused("Error in set dimensions to profile MAX")


def _at_most(smaller: Shape, larger: Shape) -> bool:
    return len(smaller) == len(larger) and all(a <= b for a, b in zip(smaller, larger, strict=True))


def check_dimensions(network: Network, found: dict[str, Profile]) -> None:
    """The builder's own look at the profile, when the file of the plan is already open."""
    for name, profile in found.items():
        shape = network.inputs[name].shape
        if len(shape) != len(profile.min):
            # Wording of TensorRT 7 (NVIDIA/TensorRT#939) under 10's prefix.
            raise Refused(
                _builder(
                    f"{name}: number of dimensions is {len(shape)} but profile 0 has "
                    f"{len(profile.min)}"
                )
            )
        for axis, size in enumerate(shape):
            at = [each[axis] for each in (profile.min, profile.opt, profile.max)]
            if size != -1 and at != [size] * 3:
                # Wording of TensorRT 10.6 (AmusementClub/vs-mlrt#119).
                raise Refused(
                    _builder(
                        f"Dimension mismatch for tensor {name} and profile 0. At dimension axis "
                        f"{axis}, profile has min={at[0]}, opt={at[1]}, max={at[2]} but tensor "
                        f"has {size}."
                    )
                )
    for name in network.uncast_inputs():
        raise Refused(
            _builder(
                f"rehearsal: input tensor {name} has datatype UInt8 and must feed a Cast directly"
            )
        )


def _builder(note: str) -> str:
    return f"Error[4]: IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error ({note})"


def _inferred(model: Any) -> Any:
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def _tensors(graph: Any) -> Iterator[tuple[str, Tensor]]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        yield value.name, Tensor(kind.elem_type, tuple(dims))
    for weight in graph.initializer:
        yield weight.name, Tensor(weight.data_type, tuple(weight.dims))


def _name(node: Any) -> str:
    return str(node.name or f"{node.op_type}_{node.output[0]}")


def _said(tensor: Tensor) -> tuple[str, str]:
    return TYPES.get(tensor.type, ("None", "Unknown format"))


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())
