"""The rehearsal's backend "tensorrt": model.plan by OpenVINO, refused as NVIDIA's refuses it.

Reads REHEARSAL_TENSORRT and REHEARSAL_COMPUTE_CAPABILITY for what the server plays, and
REHEARSAL_AUTO_COMPLETE=0 where the server runs with --disable-auto-complete-config, which changes
the words of a refusal; and REHEARSAL_COPIES: for how many instances there is memory. Followed:
triton-inference-server/tensorrt_backend, branch r26.07.
"""

import json
import os
import tempfile
from pathlib import Path

from rehearsal_plan import Machine, PlanError, deserialized

from bundle_serving.openvino_engine import Engine
from bundle_serving.triton import answer_together, pb, version_folder


class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        self.inputs = [tensor["name"] for tensor in self.config["input"]]
        self.outputs = [tensor["name"] for tensor in self.config["output"]]
        named = self.config.get("default_model_filename") or "model.plan"
        plan = _loaded(version_folder(args) / named)
        self.shapes = plan.header["shapes"]
        self._check_config(plan.header)
        self._check_memory()
        # The engine reads a file; fp16 inside is computed in fp32 here, and fp32 is close enough.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(plan.onnx)
            self.engine = Engine(path, "fp32", int(os.environ.get("REHEARSAL_THREADS", "1")))

    def _check_config(self, header):
        """What of the config contradicts the plan (model_state.cc, instance_state.cc)."""
        name, batched = self.config["name"], self.config["max_batch_size"] > 0
        largest = min((shape["max"][0] for shape in self.shapes.values()), default=0)
        if self.config["max_batch_size"] > largest:
            raise pb.TritonModelException(
                f"autofill failed for model '{name}': configuration specified max-batch "
                f"{self.config['max_batch_size']} but TensorRT engine only supports max-batch "
                f"{largest}"
            )
        for role in ("input", "output"):
            for tensor in self.config[role]:
                _check_tensor(name, tensor, role, header[f"{role}s"], batched)

    def _check_memory(self):
        """instance_state.cc, InitOptimizationProfiles: with TensorRT's own words."""
        there = int(os.environ.get("REHEARSAL_COPIES") or 0)
        if there and sum(group["count"] for group in self.config["instance_group"]) > there:
            said = "Error Code 1: Cuda Runtime (out of memory)"
            raise pb.TritonModelException(f"unable to create TensorRT context: {said}")

    def execute(self, requests):
        return answer_together(requests, self.inputs, self.outputs, self.compute)

    def compute(self, batch):
        for name, value in batch.items():
            self._check_shape(name, value.shape)
        return self.engine(batch, self.outputs)

    def _check_shape(self, name, shape):
        """tensorrt_utils.cc, ValidateDimension: one batch out of bounds fails all its requests."""
        if name not in self.shapes:
            return
        least, most = self.shapes[name]["min"], self.shapes[name]["max"]
        if len(shape) != len(most):
            raise RuntimeError(
                f"model expected {len(most)} dimensions but received {len(shape)} dimensions"
            )
        for axis, (low, high, size) in enumerate(zip(least, most, shape, strict=True)):
            if not low <= size <= high:
                raise RuntimeError(
                    f"model expected the shape of dimension {axis} to be between {low} and {high} "
                    f"but received {size}"
                )


def _loaded(path):
    """model_state.cc, AutoCompleteConfigHelper: TensorRT's own words only reach the log; without
    auto-complete (loader.cc, LoadPlan) they are part of the error."""
    try:
        return deserialized(path, Machine.played())
    except OSError as fault:
        reason = f"failed to open text file for read {path}: {fault.strerror}"
    except PlanError as fault:
        pb.Logger.log_error(str(fault))
        reason = f"unable to create TensorRT engine: {fault}"
    if os.environ.get("REHEARSAL_AUTO_COMPLETE") != "0":
        reason = f"unable to load plan file to auto complete config: {path}"
    raise pb.TritonModelException(reason)


def _check_tensor(model, tensor, role, planned, batched):
    name = tensor["name"]
    if name not in planned:
        raise pb.TritonModelException(f"rehearsal: inference {role} '{name}' is not in the plan")
    if planned[name]["type"] != tensor["data_type"]:
        raise pb.TritonModelException(
            f"unexpected datatype {planned[name]['type']} for inference {role} '{name}', "
            f"expecting {tensor['data_type']} for {model}"
        )
    dims = [-1] * batched + [int(size) for size in tensor["dims"]]
    shape = planned[name]["shape"]
    fits = len(dims) == len(shape) and all(
        -1 in (a, b) or a == b for a, b in zip(dims, shape, strict=True)
    )
    if not fits:
        raise pb.TritonModelException(
            f"model '{model}', tensor '{name}': the model expects {len(shape)} dimensions "
            f"(shape {_list(shape)}) but the model configuration specifies {len(dims)} dimensions "
            f"(shape {_list(dims)})"
        )


def _list(shape):
    return f"[{','.join(str(size) for size in shape)}]"
