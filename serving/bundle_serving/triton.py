"""The glue between pure functions and Triton's python backend. Imported by model.py files only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The stub process puts this module into sys.modules; it exists nowhere else.
import triton_python_backend_utils as pb


def version_folder(args: dict[str, str]) -> Path:
    return Path(args["model_repository"]) / args["model_version"]


def parameter(args: dict[str, str], name: str) -> str:
    """A parameter of the model's config.pbtxt."""
    value: str = json.loads(args["model_config"])["parameters"][name]["string_value"]
    return value


def array(request: Any, name: str) -> Any:
    return pb.get_input_tensor_by_name(request, name).as_numpy()


def stays_on_gpu(args: dict[str, str]) -> bool:
    """Whether the inputs of this model come as they lie, and not by way of the host."""
    parameters = json.loads(args["model_config"])["parameters"]
    stay = parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS", {})
    return bool(stay.get("string_value") == "no")


def tensor(request: Any, name: str) -> Any:
    """The input where it lies: an array of numpy, or of cupy if the step before left it on a GPU,
    whose as_numpy() only raises. (Of a model that stays_on_gpu.)"""
    given = pb.get_input_tensor_by_name(request, name)
    if given.is_cpu():
        return np.from_dlpack(given)
    import cupy  # in the image of POSTPROCESS=gpu alone

    lies = cupy.from_dlpack(given)
    # Else it would be computed with on the first GPU, which may not reach into another one.
    lies.device.use()
    return lies


def compile_for_gpus(compute: Callable[[Any], Any]) -> None:
    """cupy compiles at the first use: now, and not while a picture waits."""
    import cupy

    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            compute(cupy.zeros((1, 1), cupy.float32))


def answer(
    compute: Callable[..., Any],
    *arguments: Any,
    output: str = "OUTPUT_0",
    callers_faults: tuple[type[Exception], ...] = (),
) -> Any:
    """The response to one request; what compute raises is that request's alone. Of several
    outputs it gives a mapping of their names."""
    try:
        result = compute(*arguments)
        return _response(result if isinstance(result, Mapping) else {output: result})
    except Exception as fault:
        return failure(fault, isinstance(fault, callers_faults))


def _response(named: Mapping[str, Any]) -> Any:
    return pb.InferenceResponse([_as_tensor(name, each) for name, each in named.items()])


class AskedInVain(Exception):
    """Another model's refusal."""


def ask(model: str, inputs: Mapping[str, Any], output: str) -> Any:
    """One output of another model, on the host."""
    request = pb.InferenceRequest(
        model_name=model,
        requested_output_names=[output],
        inputs=[pb.Tensor(name, each) for name, each in inputs.items()],
        preferred_memory=pb.PreferredMemory(pb.TRITONSERVER_MEMORY_CPU, 0),
    )
    response = request.exec()
    if response.has_error():
        raise AskedInVain(response.error().message())
    # Copied, since the tensor's memory goes with the response.
    return pb.get_output_tensor_by_name(response, output).as_numpy().copy()


def _as_tensor(name: str, result: Any) -> Any:
    """Not copied here, wherever it lies. Of numpy's own DLPack capsules the stub dies: it renames
    them otherwise than numpy expects."""
    if isinstance(result, np.ndarray):
        return pb.Tensor(name, result)
    return pb.Tensor.from_dlpack(name, result)


def answer_together(
    requests: Sequence[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    compute: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> list[Any]:
    """The responses of requests that are computed as one batch, in their order."""
    parts = {name: [array(request, name) for request in requests] for name in inputs}
    try:
        results = compute(
            {n: part[0] if len(part) == 1 else np.concatenate(part) for n, part in parts.items()}
        )
    except Exception as fault:
        return [failure(fault, callers_fault=False) for _ in requests]
    ends = np.cumsum([len(part) for part in parts[inputs[0]]])[:-1]
    split = {name: np.split(results[name], ends) for name in outputs}
    return [
        pb.InferenceResponse([pb.Tensor(name, split[name][i]) for name in outputs])
        for i in range(len(requests))
    ]


def failure(fault: Exception, callers_fault: bool) -> Any:
    code = pb.TritonError.INVALID_ARG if callers_fault else pb.TritonError.INTERNAL
    return pb.InferenceResponse(error=pb.TritonError(str(fault), code))
