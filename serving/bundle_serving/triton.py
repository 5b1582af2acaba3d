"""The glue between pure functions and Triton's python backend. Imported by model.py files only."""

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# The stub process puts this module into sys.modules; it exists nowhere else.
import triton_python_backend_utils as pb

from bundle_serving.process.cores import UNSEEN, VARIABLE, Cores, Later, give_way
from bundle_serving.process.faults import forget_frames
from bundle_serving.process.server_log import log
from bundle_serving.repeated import may_be_repeated
from bundle_serving.step_reports import PartReports
from bundle_serving.work import QUEUE_FULL

TRIM_S = 5
# Characters of an error, which travels in a header.
LONGEST_FAULT = 4000


def _give_memory_back() -> None:
    """What a burst took; malloc would keep it."""
    libc = ctypes.CDLL(None)
    while True:
        time.sleep(TRIM_S)
        libc.malloc_trim(0)


threading.Thread(target=_give_memory_back, daemon=True).start()


def version_folder(args: dict[str, str]) -> Path:
    return Path(args["model_repository"]) / args["model_version"]


def parameter(args: dict[str, str], name: str, default: str | None = None) -> str:
    """A parameter of the model's config.pbtxt."""
    known = json.loads(args["model_config"])["parameters"]
    if default is not None and name not in known:
        return default
    value: str = known[name]["string_value"]
    return value


def config_of(args: dict[str, str], taken: str, given: str) -> dict[str, Any]:
    """The model's config, with this input and this output alone."""
    config: dict[str, Any] = json.loads(args["model_config"])
    for side, name in (("input", taken), ("output", given)):
        config[side] = [tensor for tensor in config[side] if tensor["name"] == name]
    return config


def give_way_if_unseen(args: dict[str, str]) -> bool:
    """To be asked once all of a process's threads are there."""
    is_unseen = parameter(args, UNSEEN, "") == args["model_version"]
    if is_unseen:
        give_way()
    return is_unseen


def cores_of(args: dict[str, str]) -> Cores:
    """Those of this process, among all of its model."""
    groups = json.loads(args["model_config"])["instance_group"]
    number = int(args["model_instance_name"].rpartition("_")[2])
    files = None if give_way_if_unseen(args) else os.environ.get(VARIABLE)
    seen_in = Path(files + args["model_name"]) if files else None
    return Cores(number, sum(group["count"] for group in groups), seen_in)


def array(request: Any, name: str) -> Any:
    return pb.get_input_tensor_by_name(request, name).as_numpy()


def stays_on_gpu(args: dict[str, str]) -> bool:
    """Whether this model's inputs stay on the GPU instead of being copied to the host."""
    parameters = json.loads(args["model_config"])["parameters"]
    stay = parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS", {})
    return bool(stay.get("string_value") == "no")


@cache
def _find_cupy() -> Any:
    """That of NVIDIA's image, if it has one."""
    try:
        import cupy
    except ImportError as fault:
        log("postprocessing", f"scores on the CPU, in spite of POSTPROCESS=gpu: {fault}")
        return None
    return cupy


def tensor(request: Any, name: str) -> Any:
    """The input without a copy: a numpy array, or a cupy array if the previous step left it on a
    GPU, where as_numpy() would raise. (For models with stays_on_gpu.)"""
    given = pb.get_input_tensor_by_name(request, name)
    if given.is_cpu():
        return np.from_dlpack(given)
    if cupy := _find_cupy():
        lies = cupy.from_dlpack(given)
    else:
        from bundle_serving.protocol.host_copy import copy_to_host

        return copy_to_host(given)
    # Otherwise the first GPU would compute with it, which may have no access to another's memory.
    lies.device.use()
    return lies


def compile_for_gpus(compute: Callable[[Any], Any], args: dict[str, str] | None = None) -> None:
    """cupy compiles on first use: do that now, not during a request. By the number of dimensions,
    which are fewer for one row, and of classes. Programs of earlier releases give no `args`."""
    cupy = _find_cupy()
    classes = json.loads(args["model_config"])["input"][0]["dims"][0] if args else 1
    for number in range(cupy.cuda.runtime.getDeviceCount() if cupy else 0):
        with cupy.cuda.Device(number):
            for rows in (1, 2):
                compute(cupy.zeros((rows, classes), cupy.float32))
            log("postprocessing", f"scores on GPU {number} by {cupy.__file__}")


def answer(
    compute: Callable[..., Any],
    *arguments: Any,
    output: str = "OUTPUT_0",
    callers_faults: tuple[type[Exception], ...] = (),
    busy: tuple[type[Exception], ...] = (),
) -> Any:
    """The response to one request; an exception from compute affects only this request. For several
    outputs, compute returns a mapping by name."""
    try:
        result = compute(*arguments)
        return _response(result if isinstance(result, Mapping) else {output: result})
    except Exception as fault:
        alone = forget_frames(fault)
        return failure(alone, isinstance(fault, callers_faults), isinstance(fault, busy))


def _response(named: Mapping[str, Any]) -> Any:
    return pb.InferenceResponse([_as_tensor(name, each) for name, each in named.items()])


class AskError(Exception):
    """Another model's refusal."""


def ask(model: str, inputs: Mapping[str, Any], output: str, request_id: str = "") -> Any:
    """One output of another model, copied to the host."""
    request = pb.InferenceRequest(
        request_id=request_id,
        model_name=model,
        requested_output_names=[output],
        inputs=[pb.Tensor(name, each) for name, each in inputs.items()],
        preferred_memory=pb.PreferredMemory(pb.TRITONSERVER_MEMORY_CPU, 0),
    )
    response = request.exec()
    if response.has_error():
        raise AskError(response.error().message())
    # Copied, because the tensor's memory is freed with the response.
    return pb.get_output_tensor_by_name(response, output).as_numpy().copy()


def _as_tensor(name: str, result: Any) -> Any:
    """Without a copy, on host or GPU. numpy's own DLPack capsules crash the stub, which renames
    them differently from what numpy expects."""
    if isinstance(result, np.ndarray):
        return pb.Tensor(name, result)
    return pb.Tensor.from_dlpack(name, result)


def answer_allowed(
    requests: Sequence[Any],
    refuse: Callable[[Any], str | None],
    compute: Callable[[Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """The responses, in order, of which some are refusals: those cost nothing."""
    reasons = [refuse(request) for request in requests]
    left = [each for each, why in zip(requests, reasons, strict=True) if not why]
    answers = iter(compute(left) if left else ())
    return [failure(ValueError(why), True) if why else next(answers) for why in reasons]


def answer_each(
    requests: Sequence[Any],
    inputs: Sequence[str],
    compute: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> list[Any]:
    """The responses of requests without a batch dimension."""
    return [
        answer(lambda request: compute({n: array(request, n) for n in inputs}), request)
        for request in requests
    ]


def answer_together(
    requests: Sequence[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    compute: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> list[Any]:
    """The responses, in order, of requests that are computed as one batch."""
    parts = {name: [array(request, name) for request in requests] for name in inputs}
    try:
        results = compute(
            {n: part[0] if len(part) == 1 else np.concatenate(part) for n, part in parts.items()}
        )
    except Exception as fault:
        busy = isinstance(fault, AskError) and QUEUE_FULL in str(fault)
        return [failure(fault, callers_fault=False, busy=busy) for _ in requests]
    ends = np.cumsum([len(part) for part in parts[inputs[0]]])[:-1]
    split = {name: np.split(results[name], ends) for name in outputs}
    return [
        pb.InferenceResponse([pb.Tensor(name, split[name][i]) for name in outputs])
        for i in range(len(requests))
    ]


def answer_one_way(
    requests: Sequence[Any],
    ways: Mapping[tuple[str, str], Callable[[Sequence[Any], Sequence[bool], Any], Sequence[Any]]],
    reports: PartReports,
    callers_faults: tuple[type[Exception], ...] = (),
) -> list[Any]:
    """The responses, in order, where an input decides which output there is. A way takes several
    requests at once; an outcome that is an exception affects only its own request."""
    responses: dict[int, Any] = {}
    for (taken, given), way in ways.items():
        alike = {n: each for n, each in enumerate(requests) if _goes(each, taken, given)}
        if not alike:
            continue
        sent = [array(each, taken) for each in alike.values()]
        may = [may_be_repeated(each) for each in alike.values()]
        outcomes = way(sent, may, reports.for_requests(list(alike.values())))
        for number, outcome in zip(alike, outcomes, strict=True):
            responses[number] = (
                failure(outcome, isinstance(outcome, callers_faults))
                if isinstance(outcome, Exception)
                else _response({given: outcome})
            )
    reports.send()
    known = ", or ".join(f"{taken} and ask for {given}" for taken, given in ways)
    for number in {*range(len(requests))} - responses.keys():
        responses[number] = failure(ValueError(f"send {known}"), callers_fault=True)
    return [responses[number] for number in range(len(requests))]


def _goes(request: Any, taken: str, given: str) -> bool:
    sent = [tensor.name() for tensor in request.inputs()]
    return sent == [taken] and given in request.requested_output_names()


def failure(fault: Exception, callers_fault: bool, busy: bool = False) -> Any:
    code = pb.TritonError.INVALID_ARG if callers_fault else pb.TritonError.INTERNAL
    code = pb.TritonError.UNAVAILABLE if busy or isinstance(fault, Later) else code
    return pb.InferenceResponse(error=pb.TritonError(str(fault)[:LONGEST_FAULT], code))
