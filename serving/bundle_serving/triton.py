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


def answer(
    compute: Callable[..., Any],
    *arguments: Any,
    output: str = "OUTPUT_0",
    callers_faults: tuple[type[Exception], ...] = (),
) -> Any:
    """The response to one request; what compute raises is that request's alone."""
    try:
        return pb.InferenceResponse([pb.Tensor(output, compute(*arguments))])
    except Exception as fault:
        return failure(fault, isinstance(fault, callers_faults))


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
