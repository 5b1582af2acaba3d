"""A function of the user's own as a model of Triton's python backend. Imported by model.py only."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb
from pytriton.exceptions import PyTritonBadParameterError, PyTritonUnrecoverableError
from pytriton.proxy.types import Request

from bundle_serving.callables import Instance, Tensors, load, one_line
from bundle_serving.step_reports import reported
from bundle_serving.triton import failure, parameter, version_folder

FILE = "function.py"
# After an unrecoverable error: until its answer is on the way.
END_S = 0.2


@reported
class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        bound = load(version_folder(args) / FILE)[parameter(args, "callable")]
        *_, number = args["model_instance_name"].rpartition("_")
        self._name = bound.name
        self._instance = Instance(bound, int(number))
        for _ in self._instance([Request(bound.question)]):
            pass  # it answers its example, or is not loaded

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [
            failure(each, isinstance(each, Refused))
            if isinstance(each, Exception)
            else pb.InferenceResponse([pb.Tensor(name, row) for name, row in each.items()])
            for each in self._outcomes([_request(each) for each in requests])
        ]

    def _outcomes(self, requests: list[Request]) -> list[Tensors | Exception]:
        """Of each request its answer, or why there is none. If several fail together, each is asked
        alone, so that no caller gets another one's error."""
        try:
            (answers,) = self._instance(requests)
            return list(answers)
        except PyTritonUnrecoverableError as fault:
            self._end(fault)
            return [self._refusal(fault)] * len(requests)
        except Exception as fault:
            if len(requests) == 1:
                traceback.print_exc()
                return [self._refusal(fault)]
            return [outcome for each in requests for outcome in self._outcomes([each])]

    def _refusal(self, fault: Exception) -> Exception:
        """Without its traceback, which would keep the request's tensors."""
        kind = Refused if isinstance(fault, PyTritonBadParameterError) else RuntimeError
        return kind(f"{self._name}: {one_line(fault)}")

    def _end(self, fault: Exception) -> None:
        """The keeper then reloads the model."""
        traceback.print_exception(fault)
        threading.Timer(END_S, os._exit, [1]).start()


class Refused(Exception):
    """The caller's fault."""


def _request(request: Any) -> Request:
    return Request({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
